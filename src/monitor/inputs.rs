//! The inputs that concern several features: events, signals, helpers, checks of files, failures.

use super::announce::Announcer;
use super::machine::Monitor;
use super::namespace::NamespaceSchedule;
use super::split_brain::Detector;
use super::vip::Vip;
use super::{
    Action, CommandResult, Control, ExitReason, FoundFiles, HelperKind, HelperNews, Instant,
    LimitedEvent, LogEvent, NamespaceCheck, Source,
};
use crate::errno::Errno;
use crate::wire::rtnl::{Address, Body};

impl Monitor<'_> {
    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        if self.resync.handle_queue_empty(now) {
            self.vip.forget_links();
        }
        self.settle(now);
        self.exit.handle_queue_empty();
        self.manager.iter_mut().for_each(|manager| manager.handle_queue_empty(now));
        self.announcer.iter_mut().for_each(|a| a.handle_queue_empty(&mut self.journal, now));
        self.metrics.iter_mut().for_each(|metrics| metrics.handle_queue_empty(now));
    }

    pub(super) fn handle_event(&mut self, body: &Body, now: Instant) {
        self.resync.handle_datagram();
        self.journal.counters.events += 1;
        match body {
            Body::NewAddress(address) => self.handle_address(address, now),
            Body::DelAddress(address) => {
                let may_have_room = self.vip.handle_address_gone(address);
                if may_have_room {
                    self.resync.request_all(now);
                }
            }
            Body::NewLink(link) => {
                let is_new = self.update_interface(|vip| vip.handle_link(link));
                if is_new || self.vip.take_detection_restart() {
                    self.resync.request_watched();
                }
            }
            Body::DelLink(link) => {
                self.update_interface(|vip| vip.handle_link_gone(link.ifindex));
            }
            _ => {}
        }
        self.announcer.iter_mut().for_each(|a| a.handle_event(body, &mut self.journal, now));
        // After a loss, the end of a link that an event shows may be among what is lost. All links are listed then.
        if let Some(detector) = self.detector.as_mut().filter(|_| self.resync.is_readable) {
            detector.handle_event(body);
        }
        // The queue may never be empty in a storm.
        self.settle(now);
    }

    /// Handles a new or changed address.
    fn handle_address(&mut self, address: &Address, now: Instant) {
        self.vip.handle_address(address);
        if !self.vip.is_vip(address) {
            return;
        }
        if self.vip.has_duplicate() {
            self.journal.log_limited(LimitedEvent::DadFailed, now);
        } else {
            self.journal.end_failures(|event| matches!(event, LimitedEvent::DadFailed));
        }
    }

    /// Updates the watched interface, and notifies the features if it has appeared, disappeared or got another index. Returns
    /// whether there is a new one, whose addresses are unknown.
    pub(super) fn update_interface(&mut self, update: impl FnOnce(&mut Vip)) -> bool {
        let presence = |vip: &Vip| (vip.ifindex(), vip.is_interface_absent());
        let before = presence(&self.vip);
        update(&mut self.vip);
        if presence(&self.vip) == before {
            return false;
        }
        let found = self.vip.ifindex();
        self.detector.iter_mut().for_each(Detector::handle_interface_change);
        self.announcer.iter_mut().for_each(|announcer| announcer.handle_watched(found));
        self.journal.log(match found {
            Some(ifindex) => LogEvent::InterfaceFound { ifindex },
            None => LogEvent::InterfaceMissing,
        });
        found.is_some()
    }

    pub(super) fn handle_overrun(&mut self, now: Instant) {
        self.journal.counters.overruns += 1;
        self.journal.log_limited(LimitedEvent::Overrun, now);
        self.handle_loss(now);
        self.resync.request_watched();
    }

    /// Handles a message that could not be read. A message about another interface does not concern the VIP.
    pub(super) fn handle_malformed_message(&mut self, ifindex: Option<u32>, now: Instant) {
        self.journal.counters.malformed += 1;
        self.journal.log_limited(LimitedEvent::MalformedMessage { ifindex }, now);
        self.resync.handle_datagram();
        self.announcer.iter_mut().for_each(Announcer::forget_links);
        self.detector.iter_mut().for_each(Detector::handle_loss);
        match (ifindex, self.vip.ifindex()) {
            (Some(ifindex), Some(watched)) if ifindex != watched => return,
            // The watched interface is absent, and the message may be about it.
            (Some(_), None) => {}
            _ => self.handle_loss(now),
        }
        self.resync.request_watched_later(now);
    }

    /// Handles a loss of events: answers that have come before are outdated. Everything but the watched interface is asked
    /// for after a pause.
    fn handle_loss(&mut self, now: Instant) {
        self.vip.discard();
        self.resync.handle_loss();
        self.detector.iter_mut().for_each(Detector::handle_loss);
        self.resync.request_all(now);
        if self.announcer.as_mut().is_some_and(Announcer::handle_loss) {
            self.resync.request_links_later(now);
        }
    }

    pub(super) fn handle_foreign_sender(&mut self, port: u32, now: Instant) {
        self.resync.handle_datagram();
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
                self.resync.request_watched();
                self.resync.request_all(now);
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

    /// Handles what a check of the files found. Without its pid file, the daemon may have a successor, and only exits.
    pub(super) fn handle_files(&mut self, found: FoundFiles, now: Instant) {
        if found.pid_file_lost {
            self.journal.log(LogEvent::Superseded);
            return self.handle_exit(ExitReason::Superseded, now);
        }
        self.state_file.handle_check(found.state_file, &mut self.journal, now);
        if found.log_renamed {
            self.journal.post(Action::ReopenLog);
        }
        if let Some(metrics) = self.metrics.as_mut().filter(|_| found.metrics_lost) {
            metrics.request();
        }
        if let Some(outbox) = self.outbox.as_mut().filter(|_| found.agent_replaced) {
            outbox.handle_replaced(&mut self.journal, now);
        }
    }

    /// Handles the failure of an action, which is tried again. All others have a result of their own.
    pub(super) fn handle_failed(&mut self, action: &Action, errno: Errno, now: Instant) {
        let not_started = HelperNews::Ended(CommandResult::NotStarted(errno));
        match action {
            Action::Sync(_) | Action::CheckConntrackd => {
                self.handle_helper(HelperKind::Conntrackd, not_started, now);
            }
            Action::RunHook { .. } => self.handle_helper(HelperKind::Hook, not_started, now),
            Action::WatchClaims { .. } | Action::ReadFrames(_) => {
                if let Some(detector) = &mut self.detector {
                    detector.handle_socket_failed(action, errno, &mut self.journal, now);
                }
            }
            Action::CheckNamespace => {
                self.journal.log_limited(LimitedEvent::NamespaceUnseen { errno }, now);
                self.namespace.handle_failed(now);
            }
            // Only a feature that is off could fail so, and that wants nothing.
            Action::Ask(_)
            | Action::SendFrame(_)
            | Action::SendProbe(_)
            | Action::WriteState(_)
            | Action::PrepareState { .. }
            | Action::WriteMetrics
            | Action::Notify(_)
            | Action::HangUp
            | Action::SignalReady
            | Action::NotifyManager(_)
            | Action::Log(_)
            | Action::LogStatus
            | Action::ReopenLog
            | Action::CheckKeepalived
            | Action::CheckFiles
            | Action::Exit(_) => {}
        }
    }

    pub(super) fn handle_helper(&mut self, helper: HelperKind, news: HelperNews, now: Instant) {
        let journal = &mut self.journal;
        match (news, helper) {
            (HelperNews::Ended(end), HelperKind::Conntrackd) => {
                self.conntrack.iter_mut().for_each(|sync| sync.handle_end(end, journal, now));
            }
            (HelperNews::Ended(end), HelperKind::Hook) => {
                self.hook.iter_mut().for_each(|hook| hook.handle_end(end, journal, now));
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
        if matches!(
            self.exit.reason(),
            None | Some(ExitReason::HelperGone(_) | ExitReason::SourceFailed(_))
        ) {
            self.namespace = NamespaceSchedule::new(NamespaceCheck::Never);
            self.vip.handle_namespace_gone();
            self.journal.log(LogEvent::NamespaceGone);
            self.handle_exit(ExitReason::NamespaceGone, now);
        }
    }

    /// Handles the end of a source of inputs, which each turn of the loop reports again.
    pub(super) fn handle_source_failed(&mut self, source: Source, errno: Errno, now: Instant) {
        if !self.exit.is_pending() {
            self.journal.log(LogEvent::SourceFailed(source, errno));
        }
        self.handle_exit(ExitReason::SourceFailed(source), now);
    }

    pub(super) fn handle_exit(&mut self, reason: ExitReason, now: Instant) {
        let is_first = self.exit.handle(reason, now);
        if let Some(manager) = self.manager.as_mut().filter(|_| is_first) {
            manager.handle_exit_begun();
        }
        if let (Some(hook), ExitReason::Signal(_) | ExitReason::NamespaceGone) =
            (&mut self.hook, reason)
        {
            hook.handle_exit(now);
        }
    }
}
