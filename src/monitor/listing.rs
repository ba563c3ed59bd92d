//! Dumps: their start, entries and end, passed to each feature, and the dumps that follow a loss of events.

use super::announce::Announcer;
use super::machine::Monitor;
use super::resync::{Purpose, Resync};
use super::split_brain::Detector;
use super::vip::Vip;
use super::{Action, Dump, DumpResult, Instant, LimitedEvent};
use crate::wire::rtnl::Body;

impl Monitor<'_> {
    pub(super) fn request_dump(&mut self, now: Instant) -> Option<Action> {
        let (running, sequence) = self.resync.begin(self.vip.ifindex(), now)?;
        self.journal.counters.dumps += 1;
        if let Some(detector) = self.detector.as_mut().filter(|_| running.only.is_none()) {
            detector.handle_list_begin(running.dump, now);
        }
        match running.dump {
            Dump::Interface => self.vip.interface_begin(),
            Dump::Addresses => {
                self.vip.addresses_begin();
                self.misplaced.addresses_begin(running.only.is_some());
                self.announcer.iter_mut().for_each(Announcer::addresses_begin);
            }
            Dump::Links => self.announcer.iter_mut().for_each(Announcer::links_begin),
        }
        Some(Action::RequestDump { dump: running.dump, only: running.only, sequence })
    }

    pub(super) fn handle_listed(&mut self, dump: Dump, body: &Body, now: Instant) {
        self.journal.counters.events += 1;
        if let Some(detector) = self.detector.as_mut().filter(|_| dump != Dump::Interface) {
            detector.handle_listed(body, &self.vip);
        }
        match (dump, body) {
            (Dump::Interface, Body::NewLink(link)) if self.vip.has_name(link.name) => {
                self.update_interface(|vip| vip.handle_link(link), now);
            }
            (Dump::Interface, Body::NewLink(link)) => {
                if let Some(owner) = link.name {
                    self.journal.log_limited(LimitedEvent::AlternativeName { owner }, now);
                }
            }
            (Dump::Addresses, Body::NewAddress(address)) => {
                self.handle_address(address, true, now);
                self.update_announcer(body, true, now);
            }
            (Dump::Links, _) => self.update_announcer(body, true, now),
            _ => {}
        }
    }

    pub(super) fn handle_dump_end(&mut self, result: DumpResult, now: Instant) {
        let Some(ended) = self.resync.end() else { return };
        let dump = ended.dump;
        let is_complete = result == DumpResult::Complete;
        if is_complete && ended.only.is_none() {
            self.journal.end_failures(|event| matches!(event, LimitedEvent::DumpFailed { .. }));
        } else if !is_complete {
            self.journal.counters.dump_failures += 1;
            self.journal.log_limited(LimitedEvent::DumpFailed { dump, result }, now);
        }
        if let Some(detector) =
            self.detector.as_mut().filter(|_| is_complete && ended.only.is_none())
        {
            detector.handle_list_end(dump, &self.vip, now);
        }
        let announcer = self.announcer.as_mut();
        // Whether no other dump is needed: for the state, and for the rest.
        let done = match dump {
            Dump::Interface => {
                if is_complete {
                    self.update_interface(Vip::interface_end, now);
                    self.detector.iter_mut().for_each(Detector::handle_interface_change);
                }
                [is_complete; 2]
            }
            Dump::Addresses if ended.only.is_some() => [self.vip.addresses_end(is_complete), false],
            Dump::Addresses => {
                if is_complete {
                    self.misplaced.addresses_end();
                }
                let state_is_known = self.vip.addresses_end(is_complete);
                let is_enough = announcer.is_none_or(|a| a.addresses_end(is_complete));
                [state_is_known, is_complete && is_enough]
            }
            Dump::Links => {
                let journal = &mut self.journal;
                [true, announcer.map_or(is_complete, |a| a.links_end(is_complete, journal, now))]
            }
        };
        self.resync.retry(ended, result, done, now);
    }

    pub(super) fn handle_overrun(&mut self, now: Instant) {
        self.journal.counters.overruns += 1;
        self.journal.log_limited(LimitedEvent::Overrun, now);
        self.request_everything(Resync::request, now);
        self.handle_loss();
    }

    /// Handles a message that could not be read. A message about another interface does not concern the VIP.
    pub(super) fn handle_malformed_message(&mut self, ifindex: Option<u32>, now: Instant) {
        self.journal.counters.malformed += 1;
        self.journal.log_limited(LimitedEvent::MalformedMessage { ifindex }, now);
        self.resync.expect_more();
        if ifindex.is_some() && ifindex != self.vip.ifindex() {
            if self.vip.ifindex().is_none() {
                self.resync.request_later(Dump::Interface, Purpose::State, now);
            }
            return;
        }
        self.resync.mark_incomplete();
        self.request_everything(Resync::request_later, now);
        self.handle_loss();
    }

    /// Requests all dumps, at once or later.
    pub(super) fn request_everything(
        &mut self,
        request: fn(&mut Resync, Dump, Purpose, Instant),
        now: Instant,
    ) {
        request(&mut self.resync, Dump::Interface, Purpose::State, now);
        request(&mut self.resync, Dump::Addresses, Purpose::State, now);
        if self.announcer.is_some() {
            request(&mut self.resync, Dump::Links, Purpose::Others, now);
        }
    }

    /// Handles a loss of events.
    fn handle_loss(&mut self) {
        self.resync.expect_more();
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_loss();
        }
    }
}
