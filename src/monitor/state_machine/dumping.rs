//! What the netlink queue brings beside events: dumps, losses, strangers.

use super::{AddressFilter, Announcer, Monitor, Vip};
use crate::monitor::resync::DumpKind;
use crate::monitor::{Action, Dump, DumpResult, LogEvent};
use crate::wire::ifname::InterfaceName;

impl Monitor<'_> {
    pub(super) fn on_dump_ended(&mut self, result: DumpResult) {
        let Some(dump) = self.resync.end(result, self.now) else { return };
        if result != DumpResult::Complete {
            return self.on_dump_failed(dump, result);
        }
        match dump {
            Dump::Links => {
                self.with_announcer(|announcer, _| announcer.links_end());
                if let Some(detector) = &mut self.detector {
                    detector.links_end();
                }
                // Not to be shown is no proof.
                self.resync.request(DumpKind::Interface);
            }
            Dump::Interface => {
                self.update_vip(&Vip::interface_end);
                self.resync.request(DumpKind::Addresses);
            }
            Dump::Addresses(ifindex) => self.vip.addresses_end(ifindex),
            Dump::Others(ifindex) => {
                self.with_announcer(|announcer, _| announcer.listing_end(ifindex, true));
            }
        }
    }

    fn on_dump_failed(&mut self, dump: Dump, result: DumpResult) {
        if let Dump::Others(ifindex) = dump {
            self.with_announcer(|announcer, _| announcer.listing_end(ifindex, false));
        }
        self.counters.dump_failures += 1;
        self.log_limited(&|count| LogEvent::DumpFailed { dump, result, count });
    }

    /// Handles another link than the watched interface.
    pub(super) fn on_other_link(&mut self, name: InterfaceName, dump: Option<Dump>) {
        if self.owner.is_some() {
            // Nothing has to be said, nor looked for, again.
        } else if dump == Some(Dump::Interface) {
            self.owner = Some(name);
            self.push(Action::Log(LogEvent::AlternativeName { owner: name }));
        } else if dump.is_none() && self.vip.is_interface_absent() {
            // It may have got the watched name for an alternative one, of which there may be hundreds to
            // be read through; so the kernel is asked.
            self.resync.request(DumpKind::Interface);
        }
    }

    pub(super) fn on_overrun(&mut self) {
        self.counters.overruns += 1;
        self.resync.request(DumpKind::Links);
        self.with_announcer(|announcer, _| announcer.on_loss());
        self.log_limited(&|count| LogEvent::Overrun { count });
    }

    pub(super) fn on_malformed_message(&mut self) {
        self.counters.malformed += 1;
        self.resync.mark_incomplete();
        self.with_announcer(|announcer, _| announcer.on_loss());
        self.log_limited(&|count| LogEvent::MalformedMessage { count });
    }

    pub(super) fn on_foreign_sender(&mut self, port: u32) {
        self.counters.foreign += 1;
        self.log_limited(&|count| LogEvent::ForeignSender { port, count });
    }

    /// Keeps the filter for addresses on the watched interface. What it has kept back there the dump shows that
    /// follows.
    ///
    /// To announce the addresses of all interfaces one has to hear of them all, and of their end.
    pub(super) fn update_address_filter(&mut self) {
        let ifindex = self.vip.ifindex();
        if self.announcer.is_none() && self.address_filter != AddressFilter::Only(ifindex) {
            self.address_filter = AddressFilter::Only(ifindex);
            self.push(Action::SetAddressFilter(ifindex));
        }
    }

    /// Asks for the next dump, if it is time for one. Otherwise the deadline says when.
    pub(super) fn request_dump(&mut self, tick: bool) {
        loop {
            if self.announcer.as_mut().is_some_and(Announcer::needs_dump) {
                self.resync.request(DumpKind::Others);
            }
            let next = if tick { self.resync.next(self.now) } else { None };
            let Some(kind) = next else { return };
            // None: what was to be listed has been seen, or has gone, meanwhile.
            let dump = match kind {
                DumpKind::Links => {
                    self.vip.links_begin();
                    self.with_announcer(|announcer, _| announcer.links_begin());
                    Some(Dump::Links)
                }
                DumpKind::Interface if self.vip.is_interface_seen() => {
                    self.resync.request(DumpKind::Addresses);
                    None
                }
                DumpKind::Interface => Some(Dump::Interface),
                DumpKind::Addresses => self.vip.addresses_begin().map(Dump::Addresses),
                DumpKind::Others => {
                    self.announcer.as_mut().and_then(Announcer::listing_begin).map(Dump::Others)
                }
            };
            if let Some(dump) = dump {
                self.counters.dumps += 1;
                let sequence = self.resync.begin(dump, self.now);
                return self.push(Action::RequestDump { dump, sequence });
            }
        }
    }
}
