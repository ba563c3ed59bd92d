//! The inputs that concern several features.

use super::dump::MessageClass;
use super::machine::Monitor;
use super::namespace::NamespaceSchedule;
use super::resync::{Purpose, Resync};
use super::vip::Vip;
use super::{
    Action, Control, Dump, DumpResult, ExitReason, HelperKind, HelperNews, Instant, LimitedEvent,
    LogEvent, NamespaceCheck,
};
use crate::wire::rtnl::{Address, Body, Message};

impl Monitor<'_> {
    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        let has_timed_out = self.resync.handle_queue_empty(now);
        self.exit.handle_queue_empty();
        if let Some(manager) = &mut self.manager {
            manager.handle_queue_empty(now);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_queue_empty(&mut self.journal, now);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.handle_queue_empty(now);
        }
        if has_timed_out {
            self.handle_dump_end(DumpResult::TimedOut, now);
        }
    }

    pub(super) fn handle_message(&mut self, message: &Message, now: Instant) {
        self.resync.expect_more();
        let body = &message.body;
        match self.resync.classify(message) {
            MessageClass::Event => self.handle_event(body, now),
            MessageClass::Listed(dump) => self.handle_listed(dump, body, now),
            MessageClass::DumpEnded(result) => self.handle_dump_end(result, now),
            MessageClass::Ignored => {}
        }
    }

    fn handle_event(&mut self, body: &Body, now: Instant) {
        self.journal.counters.events += 1;
        if let Some(detector) = &mut self.detector {
            detector.handle_event(body);
        }
        match body {
            Body::NewAddress(address) => {
                self.handle_address(address, false, now);
            }
            Body::DelAddress(address) => {
                if self.misplaced.handle_address_gone(address, &self.vip) {
                    self.resync.request(Dump::Addresses, Purpose::Others, now);
                }
                if self.vip.handle_address_gone(address) {
                    self.resync.request(Dump::Addresses, Purpose::State, now);
                }
            }
            Body::NewLink(link) => self.update_interface(|vip| vip.handle_link(link), now),
            Body::DelLink(link) => {
                self.update_interface(|vip| vip.handle_link_gone(link.ifindex), now);
            }
            _ => {}
        }
        self.update_announcer(body, false, now);
    }

    /// Passes a link or an address to the announcer, and requests the dump that has to follow.
    pub(super) fn update_announcer(&mut self, body: &Body, listed: bool, now: Instant) {
        let Some(announcer) = &mut self.announcer else { return };
        let wanted = announcer.handle_link_or_address(body, listed, &mut self.journal, now);
        if let Some(dump) = wanted {
            self.resync.request(dump, Purpose::Others, now);
        }
    }

    /// Handles a new or changed address, or one that is `listed` by the running dump.
    pub(super) fn handle_address(&mut self, address: &Address, listed: bool, now: Instant) {
        self.misplaced.handle_address(address, listed, &self.vip);
        self.vip.handle_address(address, listed);
        if self.vip.is_duplicate(address) {
            self.journal.log_limited(LimitedEvent::DadFailed, now);
        } else if self.vip.is_vip(address) {
            self.journal.end_failures(|event| matches!(event, LimitedEvent::DadFailed));
        }
    }

    /// Updates the watched interface, and notifies the features if it has appeared, disappeared or got another index.
    pub(super) fn update_interface(&mut self, update: impl FnOnce(&mut Vip), now: Instant) {
        let presence = |vip: &Vip| (vip.ifindex(), vip.is_interface_absent());
        let before = presence(&self.vip);
        update(&mut self.vip);
        if presence(&self.vip) == before {
            if self.vip.take_detection_restart() {
                self.resync.request(Dump::Addresses, Purpose::State, now);
            }
            return;
        }
        if let Some(detector) = &mut self.detector {
            detector.handle_interface_change();
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_watched(self.vip.ifindex());
        }
        if let Some(ifindex) = self.vip.ifindex() {
            self.resync.request(Dump::Addresses, Purpose::State, now);
            self.journal.log(LogEvent::InterfaceFound { ifindex });
        } else {
            // The VIP's address may be misplaced now.
            self.resync.request(Dump::Addresses, Purpose::Others, now);
            self.journal.log(LogEvent::InterfaceMissing);
        }
    }

    pub(super) fn handle_foreign_sender(&mut self, port: u32, now: Instant) {
        self.resync.expect_more();
        self.journal.counters.foreign += 1;
        self.journal.log_limited(LimitedEvent::ForeignSender { port }, now);
    }

    pub(super) fn handle_control(&mut self, control: Control, now: Instant) {
        match control {
            Control::Exit(signal) => self.handle_exit(ExitReason::Signal(signal), now),
            Control::Reload => {
                self.journal.post(Action::ReopenLog);
                self.journal.log(LogEvent::Reloading);
                if let Some(manager) = &mut self.manager {
                    manager.handle_reload(now);
                    self.ready_pending = true;
                }
                self.request_everything(Resync::request, now);
                self.reload_pending = true;
            }
            Control::ReopenLog => self.journal.post(Action::ReopenLog),
            Control::Status => {
                self.journal.post(Action::LogStatus);
                // The report of the first state requests a write itself.
                if let (Some(metrics), Some(_)) = (&mut self.metrics, self.reported) {
                    metrics.request();
                }
            }
        }
    }

    pub(super) fn handle_helper(&mut self, helper: HelperKind, news: HelperNews, now: Instant) {
        let journal = &mut self.journal;
        match (news, helper) {
            (HelperNews::Ended(end), HelperKind::Conntrackd) => {
                if let Some(conntrack) = &mut self.conntrack {
                    conntrack.handle_end(end, journal, now);
                }
            }
            (HelperNews::Ended(end), HelperKind::Hook) => {
                if let Some(hook) = &mut self.hook {
                    hook.handle_end(end, journal, now);
                }
            }
            (HelperNews::Gone, _) => {
                let is_first = match helper {
                    HelperKind::Conntrackd => self.conntrack.take().is_some(),
                    HelperKind::Hook => self.hook.take().is_some(),
                };
                if is_first {
                    journal.log(LogEvent::HelperGone(helper));
                    self.handle_exit(ExitReason::HelperGone(helper), now);
                }
            }
        }
    }

    pub(super) fn handle_namespace_gone(&mut self, now: Instant) {
        if matches!(self.exit.reason(), None | Some(ExitReason::HelperGone(_))) {
            self.namespace = NamespaceSchedule::new(NamespaceCheck::Never);
            self.vip.handle_namespace_gone();
            self.journal.log(LogEvent::NamespaceGone);
            self.handle_exit(ExitReason::NamespaceGone, now);
        }
    }

    pub(super) fn handle_exit(&mut self, reason: ExitReason, now: Instant) {
        let is_first = self.exit.handle(reason, now);
        if let Some(manager) = self.manager.as_mut().filter(|_| is_first) {
            manager.handle_exit_begun();
        }
        if let (Some(hook), ExitReason::Signal(_)) = (&mut self.hook, reason) {
            hook.handle_exit(now);
        }
    }
}
