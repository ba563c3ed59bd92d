//! What has to hold at every moment.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, Announcement, Cause, CommandResult, DumpResult, Duration, ExitReason, HelperKind,
    LogEvent, ManagerNotice, State, Trouble,
};

use super::kernel::name;
use super::lan::Lan;
use super::wire::PROBE_INTERVAL;
use super::{SIGTERM, Simulation};

/// The longest time ahead for which a retry is scheduled.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Simulation<'_> {
    /// What is not done yet is being done, or will be.
    pub(super) fn nothing_is_forgotten(&self) {
        let deadline = self.monitor.deadline();
        let soon = deadline.is_some_and(|deadline| deadline <= self.now + LONGEST_WAIT);
        let unread = self.kernel.has_unread();
        assert!(soon || unread || self.reported == Some(self.truth()), "the truth");
        assert!(soon || self.disk.file == self.reported, "the state file");
        let agent = self.options.has_no_agent || self.agent.acknowledged == self.reported;
        assert!(soon || agent, "the agent");
        let hook = self.hook.is_running() || self.hook_is_done() || self.leave_by.is_some();
        assert!(soon || unread || hook, "the hook");
        let is_pending = self.monitor.status().hook_pending.is_some();
        let is_shown = is_pending != self.hook_is_done() || self.leave_by.is_some();
        assert!(soon || unread || is_shown, "whether the hook has succeeded");
        let runs = self.conntrackd.is_running() || self.conntrackd.is_unconfigured() && soon;
        assert!(runs || self.conntrackd.is_done(), "conntrackd");
        let then = deadline.is_some_and(|deadline| deadline <= self.now + Duration::from_secs(15));
        assert!(then || self.metrics.says(&self.monitor.status()), "the metrics");
        let now = deadline.is_some_and(|deadline| deadline <= self.now);
        let written = self.reported.is_none() || self.metrics.is_expected_no_more();
        assert!(now || written, "the metrics as soon as all that is ready has been handled");
        let looks = deadline.is_some_and(|deadline| deadline <= self.now + Duration::from_secs(1));
        assert!(looks || !self.mounts_changed || self.namespace_gone.is_some(), "the namespace");
        let listens = self.wire.listening.is_some() && self.reported == Some(State::Active);
        let bound = self.wire.is_bound_to(&self.kernel);
        let reads = self.wire.goes_on(deadline, self.now);
        assert!(soon || unread || !listens || reads, "nobody reads any more");
        assert!(soon || unread || !listens || bound, "deaf on the interface that is there");
        let probes = deadline.is_some_and(|deadline| deadline <= self.now + PROBE_INTERVAL);
        assert!(probes || !listens || !self.options.probes, "the next probe");
        assert!(!self.wire.is_over, "that it is over");
        assert_eq!(self.monitor.status().claimant, self.wire.claimant);
        let leaves = |by| self.now < by && deadline.is_some_and(|deadline| deadline <= by);
        assert!(self.leave_by.is_none_or(leaves), "it ought to have left, or to leave in time");
    }

    /// Each action in its place: a new state goes to the file, then to the agent, and nobody else comes before.
    pub(super) fn note_action(&mut self, action: &Action) {
        let is_check = matches!(action, Action::CheckNamespace);
        let is_sign = *action == Action::TellManager(ManagerNotice::Alive);
        let is_probe = matches!(action, Action::SendProbe(_));
        if !is_check && !is_sign && !is_probe {
            self.busy = self.now;
        }
        self.told.asked(action, self.now);
        match action {
            Action::Log(_)
            | Action::SignalReady
            | Action::HangUp
            | Action::SetAddressFilter(_)
            | Action::RequestDump { .. }
            | Action::Exit(_) => {}
            Action::WriteState(state) => self.note_report(*state),
            Action::Notify(_) => {
                assert!(!self.news, "the agent before the file");
                // What is to be reported again may be so at any time from then on.
                if self.wrote && (self.agent_is_next || self.reloaded) {
                    self.agent.expect_report();
                }
                self.agent_is_next = false;
            }
            _ => {
                assert!(!self.news, "{action:?} before the file");
                assert!(!self.agent_is_next, "{action:?} before the agent");
            }
        }
        if is_check {
            self.note_look();
        }
    }

    /// A state is to be written.
    fn note_report(&mut self, state: State) {
        self.wrote = true;
        if self.reported != Some(state) {
            self.metrics.expect();
            self.news = true;
            self.reported = Some(state);
            self.wire.reported = Some(self.now);
            let is_gone = self.namespace_gone.map(|_| Cause::NamespaceGone);
            self.cause = is_gone.or(Some(self.hook.cause(state)));
            self.forget_claims();
            if state == State::Backup {
                self.lans.iter_mut().for_each(Lan::cut_off);
            } else {
                self.expect_hook();
            }
            self.conntrackd.want(state);
        }
    }

    /// A write of the state file has come to an end.
    pub(super) fn file_is_tried(&mut self) {
        if std::mem::take(&mut self.news) {
            self.agent_is_next = !self.agent.is_in_flight() && !self.options.has_no_agent;
        }
    }

    /// It looks for the namespace at most once a second.
    fn note_look(&mut self) {
        assert!(self.namespace_gone.is_none(), "there is nothing to be looked for");
        let pause = Duration::from_secs(1);
        let rested = self.looked.is_none_or(|looked| self.now >= looked + pause);
        assert!(rested, "it looks again and again");
        self.looked = Some(self.now);
    }

    /// A frame goes out, in its place.
    pub(super) fn announce(&mut self, announcement: &Announcement) -> Result<(), Errno> {
        assert_eq!(self.reported, Some(State::Active), "a frame from a backup");
        let known = self.truth() == State::Active || self.kernel.has_unread();
        assert!(known, "a frame from what may be a backup by now, for all that the core knows");
        self.told.check(announcement, self.kernel.mac);
        let ifindex = announcement.address.ifindex;
        if self.monitor.status().ifindex == Some(ifindex) {
            self.announce_vip(announcement);
            return Ok(());
        }
        match self.lans.iter_mut().find(|lan| lan.is(ifindex)) {
            Some(lan) => lan.send(announcement, !self.kernel.has_unread()),
            // It has gone just now.
            None => Err(Errno(6)),
        }
    }

    pub(super) fn shows(&self, trouble: Trouble) -> bool {
        self.monitor.status().troubles.contains(&Some(trouble))
    }

    /// No line says what is not so.
    pub(super) fn read_log(&mut self, note: &LogEvent) {
        match *note {
            LogEvent::SplitBrain { mac, ifindex } => self.read_split_brain(mac, ifindex),
            LogEvent::SplitBrainOver { mac, claims, lasted } => {
                self.read_split_brain_over(mac, claims, lasted);
            }
            LogEvent::Changed(cause) => self.read_cause(cause),
            LogEvent::InterfaceMissing => assert!(self.kernel.absence_told, "nobody has said so"),
            LogEvent::AlternativeName { owner } => {
                assert!(self.kernel.alternative_told && owner == name("lan"), "nobody has said so");
            }
            LogEvent::Misplaced(place) => self.misplaced_line = Some(place),
            LogEvent::DadFailed { .. } => assert!(self.vip_has_failed),
            LogEvent::Synced(state) => {
                assert!(self.conntrackd.is_synced() && self.reported == Some(state));
            }
            LogEvent::HookSucceeded { state, .. } => {
                assert!(self.hook.told == Some(state) && !self.shows(Trouble::HookFails));
            }
            LogEvent::HookFailed { state, end, .. } => {
                assert!(end != CommandResult::Exited(0));
                assert!(std::mem::take(&mut self.hook.prints), "what has it printed");
                let is_newest = self.monitor.status().hook_pending == Some(state);
                assert_eq!(self.shows(Trouble::HookFails), is_newest);
            }
            LogEvent::HelperGone(HelperKind::Hook) => {
                assert!(!self.hook.lives && self.options.has_hook);
            }
            LogEvent::DumpFailed { result: DumpResult::Interrupted, .. } => {
                assert!(self.kernel.has_interrupted, "it had no gaps");
            }
            LogEvent::DumpFailed { result: DumpResult::TimedOut, .. } => {
                assert!(!self.kernel.has_unread(), "its end may be there to be read");
            }
            LogEvent::AgentBack { failures } => {
                let known = std::mem::take(&mut self.agent.failures);
                assert!(failures > 0 && failures == known, "{known}");
            }
            LogEvent::Wrote(state) => assert_eq!(self.disk.file, Some(state)),
            LogEvent::Notified(state) => {
                assert_eq!(self.agent.acknowledged, Some(state));
                assert!(!self.shows(Trouble::AgentFails));
            }
            LogEvent::NotNotified { .. } => assert!(self.shows(Trouble::AgentFails)),
            _ => {}
        }
    }

    /// It says that the interface is gone if the core knows that, unless it has had to be written before.
    fn read_cause(&mut self, cause: Cause) {
        self.changes += 1;
        let is_gone = self.monitor.status().ifindex.is_none() && self.namespace_gone.is_none();
        match cause {
            Cause::InterfaceGone => assert!(self.kernel.has_been_absent, "it is there"),
            Cause::DuplicateAddress => assert!(self.vip_has_failed),
            _ => {
                assert!(self.emptied_at.is_none() || !is_gone, "{cause:?}");
                assert_eq!(Some(cause), self.cause);
            }
        }
    }

    /// It leaves because it was asked to, or because nothing is left to be watched or told.
    pub(super) fn exit(&mut self, ending: ExitReason) {
        self.exited = true;
        self.manager_knows_the_end();
        if let ExitReason::Signal(signal) = ending {
            assert_eq!(signal, SIGTERM);
            assert!(self.asked_to_leave, "nobody asked");
            let reported = self.reported.is_some_and(|s| self.truths_since_asked.contains(&s));
            let in_time = self.leave_by.is_some_and(|by| self.now >= by);
            let done = reported && !self.agent.is_connected();
            assert!(done || in_time, "the truth, before it leaves");
            return;
        }
        if let ExitReason::HelperGone(helper) = ending {
            return self.exit_without_helper(helper);
        }
        let gone = self.namespace_gone.expect("a namespace that has gone");
        let backup = Some(State::Backup);
        assert_eq!(self.reported, backup);
        let agent = self.options.has_no_agent || self.agent.acknowledged == backup;
        let told = agent && self.disk.file == backup && self.hook_is_done();
        assert!(told || self.now >= gone + Duration::from_secs(5), "it has not told, nor tried");
    }

    /// It leaves because there is nobody to run programs any more, but not before machines know the truth.
    fn exit_without_helper(&self, helper: HelperKind) {
        let (gone, since) = self.helper_gone.expect("a helper that has gone");
        assert_eq!(gone, helper);
        let reported = self.reported.is_some_and(|s| self.truths_since_asked.contains(&s));
        let agent = self.options.has_no_agent || self.agent.acknowledged == self.reported;
        let told = reported && agent && self.disk.file == self.reported;
        assert!(told || self.now >= since + Duration::from_secs(5), "it has not told, nor tried");
    }
}
