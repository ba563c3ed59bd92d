//! The invariants after every input and action.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, AddressKey, Announcement, Cause, CommandResult, Duration, ExitReason, HelperKind,
    Instant, LimitedEvent, LogEvent, ManagerNotice, Question, State, Trouble,
};
use keepwatch::wire::rtnl::Address;

use super::hook::Hook;
use super::kernel::{UP, name};
use super::lan::Lan;
use super::retry::{answer_kind, failure_kind};
use super::wire::{PROBE_INTERVAL, SUSPICION};
use super::{CHECK, SIGTERM, Simulation};

/// The longest wait for a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The longest time between two checks of the files, which reports put off.
const CHECK_FILES: Duration = Duration::from_secs(610);

impl Simulation<'_> {
    /// Asserts that everything pending is under way or scheduled.
    pub(super) fn nothing_is_forgotten(&self) {
        let deadline = self.monitor.deadline();
        let soon = deadline.is_some_and(|deadline| deadline <= self.now + LONGEST_WAIT);
        let is_soon =
            |by: Option<Instant>| by.is_some_and(|by| deadline.is_some_and(|at| at <= by));
        let unread = self.kernel.has_unread();
        assert!(soon || unread || self.reported == Some(self.truth()), "p1_truth_is_reported");
        assert!(soon || self.disk.written == self.reported, "p3_state_file_is_not_forgotten");
        assert!(!self.disk.is_unprepared, "p3_spare_is_not_forgotten");
        let checks = deadline.is_some_and(|deadline| deadline <= self.checked + CHECK_FILES);
        assert!(self.reported.is_none() || checks, "p3_files_are_checked");
        let due = self.keepalived.due();
        let checks = due.is_none_or(|due| self.now < due && is_soon(Some(due)));
        assert!(checks, "p21_keepalived_is_checked");
        let gone = self.shows(Trouble::KeepalivedGone);
        assert_eq!(gone, self.keepalived.is_trouble(), "p21_keepalived_is_shown");
        let agent = self.options.has_no_agent || self.agent.acknowledged == self.reported;
        assert!(soon || agent, "p6_agent_is_not_forgotten");
        let hook = self.hook.is_running() || self.hook_is_done() || self.leave_by.is_some();
        let retries = self.hook.retry.is_pending();
        let waits = is_soon(self.hook.turn().filter(|turn| self.now < *turn));
        assert!(soon || unread || waits || hook || retries, "p20_hook_is_not_forgotten");
        let is_pending = self.monitor.status().hook_pending.is_some();
        let is_shown = is_pending != self.hook_is_done() || self.leave_by.is_some();
        assert!(soon || unread || waits || is_shown, "p20_pending_is_shown");
        let goes_on = self.conntrackd.goes_on(deadline, self.now);
        assert!(goes_on || self.leave_by.is_some(), "p13_conntrackd_is_not_forgotten");
        assert!(self.conntrackd.has_its_lines(), "p13_end_has_its_line: {:?}", self.conntrackd);
        let then = deadline.is_some_and(|deadline| deadline <= self.now + Duration::from_secs(15));
        assert!(then || self.metrics.has(&self.monitor.status()), "p14_metrics_are_not_forgotten");
        let now = deadline.is_some_and(|deadline| deadline <= self.now);
        let written = self.reported.is_none() || self.metrics.is_expected_no_more();
        assert!(now || written, "p14_metrics_follow_a_report");
        let look_by = if self.options.mounts_are_hidden {
            Some(self.looked.unwrap_or(self.now) + CHECK)
        } else {
            self.mounts_changed.then_some(self.now + Duration::from_secs(1))
        };
        let looks = look_by.is_none() || [look_by, self.check_by].into_iter().any(is_soon);
        assert!(looks || self.namespace_gone.is_some(), "p10_namespace_is_looked_for");
        let listens = self.wire.listening.is_some() && self.reported == Some(State::Active);
        let bound = self.wire.is_bound_to(&self.kernel);
        let reads = self.wire.goes_on(deadline, self.now);
        let soon = soon || is_soon(self.wire.retry_by);
        assert!(soon || unread || !listens || reads, "p12_frames_are_read");
        assert!(soon || unread || !listens || bound, "p12_socket_is_bound_to_the_interface");
        // During a suspicion up to a minute passes between two rounds.
        let between = if self.wire.is_claimed() { SUSPICION } else { PROBE_INTERVAL };
        let probes = deadline.is_some_and(|deadline| deadline <= self.now + between);
        let can_ask = listens && self.options.probes && self.kernel.flags.contains(UP);
        assert!(probes || unread || !can_ask, "p12_probe_is_scheduled");
        assert!(!self.wire.is_over, "p12_end_is_said");
        assert_eq!(self.monitor.status().claimant, self.wire.claimant, "p12_claimant_is_shown");
        let leaves = |by| self.now < by && deadline.is_some_and(|deadline| deadline <= by);
        let leave_by = if self.hook_delays_exit() { self.hook_leave_by } else { self.leave_by };
        assert!(leave_by.is_none_or(leaves), "p14_leaves_in_time");
        assert!(!self.reopens_log, "p14_log_is_reopened");
    }

    /// Asserts the order of actions: a new state first goes to the file, then to the agent.
    pub(super) fn note_action(&mut self, action: &Action) {
        let is_check = matches!(action, Action::CheckNamespace);
        let is_look = is_check
            || matches!(
                action,
                Action::CheckFiles | Action::CheckConntrackd | Action::CheckKeepalived
            );
        let is_sign = *action == Action::NotifyManager(ManagerNotice::Alive);
        let is_probe = matches!(
            action,
            Action::SendProbe(_) | Action::Ask(Question::Addresses { only: Some(_) })
        );
        if !is_look && !is_sign && !is_probe {
            self.busy = self.now;
        }
        match action {
            Action::Log(_)
            | Action::SignalReady
            | Action::HangUp
            | Action::Ask(_)
            | Action::Exit(_) => {}
            Action::WriteState(state) => self.note_report(*state),
            Action::Notify(_) => {
                assert!(!self.news, "p4_file_before_agent");
                // From then on, a repeated report needs no pause.
                if self.wrote && (self.agent_is_next || self.reloaded) {
                    self.agent.expect_report();
                }
                self.agent_is_next = false;
            }
            _ => {
                assert!(!self.news, "p4_file_first: {action:?}");
                assert!(!self.agent_is_next, "p4_agent_next: {action:?}");
            }
        }
        if is_check {
            self.note_look();
        }
    }

    /// Notes a write of the state file, which reports a new state or repeats the old one.
    fn note_report(&mut self, state: State) {
        self.wrote = true;
        if self.reported != Some(state) {
            self.metrics.expect();
            self.disk.retry.reset();
            self.agent.retry.reset();
            self.news = true;
            if self.reported.is_none() {
                self.checked = self.now;
            }
            self.reported = Some(state);
            self.wire.reported = Some(self.now);
            let is_gone = self.namespace_gone.map(|_| Cause::NamespaceGone);
            self.causes =
                [is_gone.or(Some(Hook::cause(self.kernel.known_flags, state))), self.causes[0]];
            self.forget_claims();
            if state == State::Backup {
                self.lans.iter_mut().for_each(Lan::announce_anew);
                self.questions.forget_links();
            } else {
                self.expect_hook();
            }
            self.conntrackd.want(state);
        }
    }

    /// Notes the end of a write of the state file.
    pub(super) fn file_is_tried(&mut self) {
        if std::mem::take(&mut self.news) {
            self.agent_is_next = !self.agent.is_in_flight() && !self.options.has_no_agent;
        }
    }

    /// Asserts that the namespace is checked at most once a second.
    fn note_look(&mut self) {
        assert!(self.namespace_gone.is_none(), "p10_namespace_is_there");
        let pause = Duration::from_secs(1);
        let rested = self.looked.is_none_or(|looked| self.now >= looked + pause);
        assert!(rested, "p10_looks_are_few");
        self.looked = Some(self.now);
    }

    /// Asserts that a frame is due and right. Returns the result of sending it.
    pub(super) fn announce(&mut self, announcement: &Announcement) -> Result<(), Errno> {
        assert_eq!(self.reported, Some(State::Active), "p11_only_while_active");
        let known = self.truth() == State::Active || self.kernel.has_unread();
        assert!(known, "p11_only_while_active_by_all_that_is_known");
        let ifindex = announcement.address.ifindex;
        if self.monitor.status().ifindex == Some(ifindex) {
            self.announce_vip(announcement);
            return Ok(());
        }
        if let Some(lan) = self.lans.iter_mut().find(|lan| lan.is(ifindex)) {
            // A burst relies on the last look.
            let is_unread = self.kernel.has_unread();
            return if is_unread { lan.note_frame(announcement) } else { lan.send(announcement) };
        }
        // The watched interface may have been renamed.
        let is_there = |address: &Address| AddressKey::from(address) == announcement.address;
        let is_there = self.kernel.misplaced.iter().any(is_there);
        assert!(is_there || self.kernel.has_unread(), "p11_link_is_there");
        Ok(())
    }

    pub(super) fn shows(&self, trouble: Trouble) -> bool {
        self.monitor.status().troubles.contains(&Some(trouble))
    }

    /// Asserts that a log line is true.
    pub(super) fn read_log(&mut self, note: &LogEvent) {
        match *note {
            LogEvent::SplitBrain { mac, ifindex } => self.read_split_brain(mac, ifindex),
            LogEvent::SplitBrainOver { mac, claims, lasted, silent, ending } => {
                self.read_split_brain_over(mac, claims, [lasted, silent], ending);
            }
            LogEvent::Changed(cause) => self.read_cause(cause),
            LogEvent::InterfaceMissing => {
                self.kernel.absence_lines += 1;
                let has_been = self.kernel.absence_lines <= self.kernel.absences;
                assert!(has_been, "p9_interface_was_absent");
            }
            LogEvent::Elsewhere { .. } => panic!("p12_no_vip_here_is_link_local"),
            LogEvent::Synced { .. }
            | LogEvent::CommandFailed { .. }
            | LogEvent::ConntrackdRestarted => self.conntrackd.read_line(note),
            LogEvent::SourceFailed(..) => panic!("p20_sources_work: {note:?}"),
            LogEvent::Superseded => assert!(self.pid_file_is_lost, "p15_pid_file_is_lost"),
            LogEvent::AgentReplaced => assert!(self.agent.is_replaced(), "p6_agent_is_replaced"),
            LogEvent::HookSucceeded { state, .. } => {
                assert!(
                    self.hook.succeeded_for == Some(state) && !self.shows(Trouble::HookFails),
                    "p20_hook_has_succeeded"
                );
            }
            LogEvent::HelperGone(HelperKind::Hook) => {
                assert!(!self.hook.lives && self.options.has_hook, "p20_helper_is_gone");
            }
            LogEvent::AgentBack { failures } => {
                let known = std::mem::take(&mut self.agent.returned);
                assert!(failures > 0 && failures == known, "p6_agent_is_back: {known}");
            }
            LogEvent::Wrote(state) => assert_eq!(self.disk.file, Some(state), "p3_file_is_written"),
            LogEvent::Notified(state) => {
                assert_eq!(self.agent.acknowledged, Some(state), "p6_agent_has_it");
            }
            LogEvent::Initial(state) => {
                assert_eq!(Some(state), self.monitor.status().state, "p2_initial");
            }
            LogEvent::InterfaceFound { ifindex } => {
                assert_eq!(self.monitor.status().ifindex, Some(ifindex), "p9_interface_is_found");
            }
            LogEvent::HelperGone(HelperKind::Conntrackd) => {
                assert!(!self.conntrackd.lives, "p20_gone");
            }
            LogEvent::NamespaceGone => {
                assert!(self.namespace_gone.is_some(), "p10_namespace_is_gone");
            }
            LogEvent::Reloading => assert!(self.reloaded, "p14_reload"),
            LogEvent::LinesLost { .. } => panic!("p19_there_is_room: {note:?}"),
            LogEvent::Limited(ref event, count) => self.read_limited(event, count),
        }
    }

    fn read_limited(&mut self, event: &LimitedEvent, count: u32) {
        let kind = match *event {
            LimitedEvent::AlternativeName { owner } => {
                let is_known = self.kernel.alternative_known && owner == name("lan");
                assert!(is_known, "p9_alternative_name_is_known");
                return self.limits.read_other(("name", 0), self.now);
            }
            LimitedEvent::Misplaced { interface, cidr } => {
                self.misplaced_line = Some(Trouble::Misplaced(interface, cidr));
                let state = self.monitor.status().state;
                assert_eq!(state, Some(State::Backup), "p12_misplaced_only_on_backup");
                assert!(self.namespace_gone.is_none(), "p12_nothing_is_misplaced_at_the_end");
                return self.limits.read_other(("misplaced", 0), self.now);
            }
            LimitedEvent::InterfaceDown(_) => {
                return self.limits.read_other(("down", 0), self.now);
            }
            LimitedEvent::DadFailed => {
                return assert!(self.vip_has_failed, "p1_detection_has_failed");
            }
            LimitedEvent::ConntrackdUnconfigured => {
                return assert!(self.conntrackd.is_unconfigured(), "p13_missing");
            }
            LimitedEvent::TooManyAddresses { .. } | LimitedEvent::TooManyLinks { .. } => {
                panic!("p19_there_is_room: {event:?}")
            }
            LimitedEvent::HookFailed { state, end, .. } => {
                assert!(end != CommandResult::Exited(0), "p20_hook_has_failed");
                assert!(std::mem::take(&mut self.hook.prints), "p20_output_is_printed");
                let is_newest = self.monitor.status().hook_pending == Some(state);
                assert_eq!(self.shows(Trouble::HookFails), is_newest, "p20_failure_is_shown");
                ("hook", state as usize)
            }
            LimitedEvent::QuestionFailed { answer, .. } => answer_kind(answer),
            LimitedEvent::NotNotified { failure } => {
                assert!(self.shows(Trouble::AgentFails), "p6_agent_fails");
                failure_kind(failure)
            }
            LimitedEvent::NotWritten { .. } => ("file", 0),
            LimitedEvent::NotPrepared { .. } => {
                assert!(self.shows(Trouble::SpareFails), "p3_spare_fails");
                ("spare", 0)
            }
            LimitedEvent::StateFileShared => ("shared file", 0),
            LimitedEvent::StateFileChanged => {
                return assert!(std::mem::take(&mut self.disk.was_changed), "p3_it_was_changed");
            }
            LimitedEvent::MetricsNotWritten { .. } => ("metrics", 0),
            LimitedEvent::NotAnnounced { .. } => ("announcement", 0),
            LimitedEvent::ClaimUnconfirmed { mac } => {
                self.read_unconfirmed(mac);
                return self.limits.read_other(("claim", 0), self.now);
            }
            LimitedEvent::NotListening { .. } => ("socket", 0),
            LimitedEvent::NamespaceUnseen { .. } => ("namespace", 0),
            LimitedEvent::NotProbed { .. } => ("probe", 0),
            LimitedEvent::NoSender => return self.limits.read_other(("sender", 0), self.now),
            LimitedEvent::KeepalivedGone => ("keepalived", 0),
            LimitedEvent::Overrun => ("overrun", 0),
            LimitedEvent::ForeignSender { .. } => ("foreign", 0),
            LimitedEvent::MalformedMessage { .. } => ("malformed", 0),
        };
        self.limits.read(kind, count);
    }

    /// Asserts that a cause is true. It is logged after the report, or later while the interface may be about to go.
    fn read_cause(&mut self, cause: Cause) {
        self.changes += 1;
        match cause {
            Cause::InterfaceGone => assert!(self.kernel.absences > 0, "p9_interface_was_gone"),
            Cause::DuplicateAddress => assert!(self.vip_has_failed, "p1_detection_had_failed"),
            _ => assert!(self.causes.contains(&Some(cause)), "p7_cause_is_true: {cause:?}"),
        }
    }

    /// Asserts that the core may exit for this reason, and has reported the truth.
    pub(super) fn exit(&mut self, ending: ExitReason) {
        self.exited = true;
        self.manager_knows_the_end();
        if let ExitReason::Signal(signal) = ending {
            assert_eq!(signal, SIGTERM, "p14_signal_is_the_one");
            assert!(self.exit_requested, "p14_exit_was_asked_for");
            let reported = self.reported.is_some_and(|s| self.truths_since_asked.contains(&s));
            let in_time = self.leave_by.is_some_and(|by| self.now >= by);
            let waits = self.hook_leave_by.is_some_and(|by| self.now < by);
            assert!(!waits || !self.hook_delays_exit(), "p20_run_ends_before_the_exit");
            let done = reported && !self.agent.is_connected();
            assert!(done || in_time, "p14_truth_before_exit");
            return;
        }
        if ending == ExitReason::Superseded {
            return assert!(self.pid_file_is_lost, "p15_pid_file_was_lost");
        }
        if let ExitReason::HelperGone(helper) = ending {
            return self.exit_without_helper(helper);
        }
        let gone = self.namespace_gone.expect("a namespace that has gone");
        let backup = Some(State::Backup);
        assert_eq!(self.reported, backup, "p10_backup_is_reported");
        let agent = self.options.has_no_agent || self.agent.acknowledged == backup;
        let known = agent && self.disk.written == backup && self.hook_is_done();
        assert!(known || self.now >= gone + Duration::from_secs(5), "p10_all_know_before_exit");
    }

    /// Asserts that a core without its helper exits only after file and agent have the truth.
    fn exit_without_helper(&self, helper: HelperKind) {
        let (gone, since) = self.helper_gone.expect("a helper that has gone");
        assert_eq!(gone, helper, "p20_helper_was_this");
        let reported = self.reported.is_some_and(|s| self.truths_since_asked.contains(&s));
        let agent = self.options.has_no_agent || self.agent.acknowledged == self.reported;
        let known = reported && agent && self.disk.written == self.reported;
        assert!(known || self.now >= since + Duration::from_secs(5), "p20_all_know_before_exit");
    }
}
