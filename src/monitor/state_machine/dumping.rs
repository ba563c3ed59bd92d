//! What the netlink queue brings beside events: dumps, losses, strangers.

use super::{Announcer, Interface, Monitor, Vip, count};
use crate::monitor::{Action, DumpKind, DumpResult, LogEvent};
use crate::wire::ifname::InterfaceName;

impl Monitor<'_> {
    pub(super) fn on_dump_ended(&mut self, end: DumpResult) {
        let Some((stage, end)) = self.resync.end(end, self.now) else { return };
        match (end, stage) {
            (DumpResult::Complete, DumpKind::Links) => {
                self.with_announcer(|announcer, _| announcer.links_end());
                if let Some(detector) = &mut self.detector {
                    detector.links_end();
                }
                // Not to be shown is no proof.
                self.resync.want(DumpKind::Interface);
            }
            (DumpResult::Complete, DumpKind::Interface) => {
                self.update_vip(Vip::interface_end);
                self.resync.want(DumpKind::Addresses);
            }
            (DumpResult::Complete, DumpKind::Addresses) => self.vip.addresses_end(),
            (DumpResult::Complete, DumpKind::Others) => {
                self.with_announcer(|announcer, _| announcer.listing_end(true));
            }
            _ => {
                self.with_announcer(|announcer, _| announcer.listing_end(false));
                count(&mut self.status.dump_failures);
                let repeat = self.rate_limits.dump_failed.get_mut(end.kind());
                if let Some(count) = repeat.and_then(|repeat| repeat.should_log(self.now)) {
                    self.push(Action::Log(LogEvent::DumpFailed { stage, end, count }));
                }
            }
        }
    }

    /// Takes another link than the watched interface, while that is not there.
    pub(super) fn on_other_link(&mut self, name: InterfaceName, listed: bool) {
        let asked_for = listed && self.resync.stage() == Some(DumpKind::Interface);
        if self.owner.is_some() {
            // Nothing has to be said, nor looked for, again.
        } else if asked_for {
            self.owner = Some(name);
            self.push(Action::Log(LogEvent::AlternativeName { owner: name }));
        } else if !listed && self.vip.interface() == Interface::Absent {
            // It may have got the watched name for an alternative one, of which there may be hundreds to
            // be read through; so the kernel is asked.
            self.resync.want(DumpKind::Interface);
        }
    }

    pub(super) fn on_overrun(&mut self) {
        count(&mut self.status.overruns);
        self.resync.want(DumpKind::Links);
        self.with_announcer(|announcer, _| announcer.on_loss());
        if let Some(count) = self.rate_limits.overrun.should_log(self.now) {
            self.push(Action::Log(LogEvent::Overrun { count }));
        }
    }

    pub(super) fn on_unreadable(&mut self) {
        count(&mut self.status.unreadable);
        self.resync.spoil();
        self.with_announcer(|announcer, _| announcer.on_loss());
        if let Some(count) = self.rate_limits.unreadable.should_log(self.now) {
            self.push(Action::Log(LogEvent::Unreadable { count }));
        }
    }

    pub(super) fn on_foreign_sender(&mut self, port: u32) {
        count(&mut self.status.foreign);
        if let Some(count) = self.rate_limits.foreign_sender.should_log(self.now) {
            self.push(Action::Log(LogEvent::ForeignSender { port, count }));
        }
    }

    /// Has only those addresses heard of that matter. What is missed on an interface before it is heeded
    /// the dump shows that follows.
    ///
    /// To announce the addresses of all interfaces one has to hear of them all, and of their end.
    pub(super) fn heed(&mut self) {
        let wanted = Some(self.vip.interface());
        if self.announcer.is_none() && self.heeding != wanted {
            self.heeding = wanted;
            self.push(Action::Heed(self.vip.ifindex()));
        }
    }

    /// Asks for the next dump, if it is time for one. Otherwise the deadline says when.
    pub(super) fn begin_dump(&mut self, queue_is_empty: bool) {
        loop {
            if self.announcer.as_mut().is_some_and(Announcer::wants_listing) {
                self.resync.want(DumpKind::Others);
            }
            let begun = if queue_is_empty { self.resync.begin(self.now) } else { None };
            let Some(stage) = begun else { return };
            let action = match stage {
                DumpKind::Links => {
                    self.vip.links_begin();
                    self.with_announcer(|announcer, _| announcer.links_begin());
                    if let Some(detector) = &mut self.detector {
                        detector.links_begin();
                    }
                    Some(Action::DumpLinks)
                }
                DumpKind::Interface => {
                    (!self.vip.is_interface_seen()).then_some(Action::RequestInterface)
                }
                DumpKind::Addresses => self.vip.addresses_begin().map(Action::DumpAddresses),
                DumpKind::Others => {
                    let link = self.announcer.as_mut().and_then(Announcer::listing_begin);
                    link.map(Action::DumpAddresses)
                }
            };
            match action {
                Some(action) => {
                    count(&mut self.status.dumps);
                    self.push(action);
                    return;
                }
                // There is nothing to ask for: the interface has been seen, or has gone meanwhile.
                None => self.on_dump_ended(DumpResult::Complete),
            }
        }
    }
}
