//! The monitor as a whole: a list of features, which are polled in order for the next action.

use super::agent::Outbox;
use super::announce::Announcer;
use super::conntrack::SyncSequence;
use super::exit::Exit;
use super::file_check::FileCheck;
use super::hook::HookSchedule;
use super::journal::Journal;
use super::keepalived::KeepalivedCheck;
use super::namespace::NamespaceSchedule;
use super::resync::Resync;
use super::service_manager::ManagerNotifier;
use super::split_brain::Detector;
use super::state_file::StateFile;
use super::status::{MetricsSchedule, Troubles};
use super::vip::Vip;
use super::{
    Action, Cause, CommandResult, ExitReason, HelperKind, Input, Instant, MonitorConfig, Outcome,
    State, Status, Trouble,
};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;

/// The state machine: see [`crate::monitor`].
#[derive(Debug)]
pub struct Monitor<'a> {
    pub(super) journal: Journal,
    pub(super) resync: Resync,
    pub(super) vip: Vip,
    /// The last state reported, and the time of its report.
    pub(super) reported: Option<(State, Instant)>,
    /// The pending log line about the last change: its cause and due time.
    pub(super) change: Option<(Cause, Instant)>,
    /// A reload (SIGHUP) waits for the dumps that decide the state, to report everything again.
    pub(super) reload_pending: bool,
    /// The parent or the service manager waits until the state file holds the state.
    pub(super) ready_pending: bool,
    /// The location of a misplaced VIP, once it has been logged.
    pub(super) logged_location: Option<(InterfaceName, Cidr)>,
    /// The line about a VIP elsewhere has been logged.
    pub(super) logged_elsewhere: bool,
    pub(super) down: DownLine,
    /// The log file could not be reopened.
    pub(super) log_fails: bool,
    pub(super) state_file: StateFile,
    pub(super) outbox: Option<Outbox>,
    pub(super) conntrack: Option<SyncSequence>,
    pub(super) hook: Option<HookSchedule>,
    pub(super) announcer: Option<Announcer<'a>>,
    pub(super) detector: Option<Detector>,
    pub(super) metrics: Option<MetricsSchedule>,
    pub(super) namespace: NamespaceSchedule,
    pub(super) file_check: FileCheck,
    pub(super) keepalived: Option<KeepalivedCheck>,
    pub(super) manager: Option<ManagerNotifier>,
    pub(super) exit: Exit,
}

/// The log line about an interface that is down while it has the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DownLine {
    None,
    Due(Instant),
    Logged(Cause),
}

impl<'a> Monitor<'a> {
    /// Returns a monitor that starts to act at the first [`super::Input::QueueEmpty`].
    #[must_use]
    pub fn new(config: MonitorConfig<'a>) -> Self {
        let seed = config.seed;
        Self {
            journal: Journal::default(),
            resync: Resync::new(seed, config.queue_len),
            vip: Vip::new(config.interface, config.vip),
            reported: None,
            change: None,
            reload_pending: false,
            ready_pending: true,
            logged_location: None,
            logged_elsewhere: false,
            down: DownLine::None,
            log_fails: false,
            state_file: StateFile::new(seed),
            outbox: (config.notify_agent)
                .then(|| Outbox::new(seed, config.renotify, config.predecessor)),
            conntrack: config.sync_conntrack.then(|| SyncSequence::new(seed)),
            hook: config.hook.map(|timing| HookSchedule::new(seed, timing, config.predecessor)),
            announcer: (config.announce)
                .map(|(timing, tables)| Announcer::new(timing, tables, config.announce_changes)),
            detector: config
                .detect_split_brain
                .then(|| Detector::new(config.probe_interval, config.announce_again)),
            metrics: config.write_metrics.then(MetricsSchedule::new),
            namespace: NamespaceSchedule::new(config.check_namespace),
            file_check: FileCheck::new(config.check_files),
            keepalived: config.check_keepalived.then(|| KeepalivedCheck::new(Instant::ZERO)),
            manager: config.notify_manager.then(|| ManagerNotifier::new(config.watchdog, seed)),
            exit: Exit::default(),
        }
    }

    /// Handles an input at `now`. [`Monitor::next_action`] returns the actions that follow.
    pub fn handle(&mut self, input: &Input, now: Instant) {
        let journal = &mut self.journal;
        match input {
            Input::QueueEmpty => self.handle_queue_empty(now),
            Input::Event(body) => self.handle_event(body, now),
            Input::Entry(body) => self.handle_entry(body, now),
            Input::Answered(answer) => self.handle_answered(*answer, now),
            Input::Overrun => self.handle_overrun(now),
            Input::MalformedMessage(ifindex) => self.handle_malformed_message(*ifindex, now),
            Input::ForeignSender(port) => self.handle_foreign_sender(*port, now),
            Input::StateFile(result) => {
                let since = self.reported.map_or(now, |(_, since)| since);
                self.state_file.handle_write(*result, since, journal, now);
            }
            Input::StatePrepared(result) => {
                self.state_file.handle_preparation(*result, journal, now);
            }
            Input::MetricsFile(result) => {
                self.metrics.iter_mut().for_each(|m| m.handle_write(*result, journal, now));
            }
            Input::Agent(outcome) => {
                if let Some(outbox) = &mut self.outbox {
                    outbox.handle_outcome(*outcome, journal, now);
                }
                if let Outcome::Delivered { .. } = outcome {
                    self.file_check.restart(now);
                }
            }
            Input::FilesChecked(found) => self.handle_files(*found, now),
            Input::ManagerNotified(result) => {
                self.manager.iter_mut().for_each(|m| m.handle_sent(result.is_ok(), now));
            }
            Input::LogReopened { succeeded } => self.log_fails = !succeeded,
            Input::Control(control) => self.handle_control(*control, now),
            Input::Sent(address, result) => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.handle_sent(*address, *result, journal, now);
                }
            }
            Input::Probed(result) => {
                self.detector.iter_mut().for_each(|d| d.handle_probed(*result, journal, now));
            }
            Input::Frame(claim) => {
                if let Some(detector) = &mut self.detector {
                    detector.handle_frame(*claim, &self.vip, journal, now);
                }
            }
            Input::Helper(helper, news) => self.handle_helper(*helper, *news, now),
            Input::KeepalivedChecked(found) => {
                self.keepalived.iter_mut().for_each(|k| k.handle_check(*found, journal, now));
            }
            Input::ClockSet => {
                // The state file has the time of the last change.
                self.state_file.spares.repeat(now);
                if let Some(metrics) = self.metrics.as_mut().filter(|_| self.reported.is_some()) {
                    metrics.request();
                }
            }
            Input::Failed(action, errno) => self.handle_failed(action, *errno, now),
            Input::SourceFailed(source, errno) => {
                self.handle_source_failed(*source, *errno, now);
            }
            Input::MountsChanged => self.namespace.handle_mounts_changed(now),
            Input::NamespaceGone => self.handle_namespace_gone(now),
        }
    }

    /// Returns the next action at `now`, the time of the last input. The features are polled by priority.
    pub fn next_action(&mut self, now: Instant) -> Option<Action> {
        let is_current = self.is_known() && self.resync.is_current(now);
        let allows_commands = !self.exit.is_pending();
        self.report(now);
        // The agent is notified after the first attempt to write the state file.
        (self.state_file.next_action(now))
            .or_else(|| self.signal_ready())
            .or_else(|| self.outbox.as_mut()?.next_action(now))
            // The text of a line takes as long as a system call, so no report waits for it.
            .or_else(|| self.journal.next_action())
            // conntrackd's commands and the hook have a helper process each, so neither delays the other.
            .or_else(|| self.conntrack.as_mut().filter(|_| allows_commands)?.next_action(now))
            .or_else(|| self.run_hook(now))
            .or_else(|| self.state_file.prepare(now))
            // The rest must not delay a report.
            .or_else(|| self.log_troubles(now))
            .or_else(|| self.watch_claims(is_current, now))
            .or_else(|| self.ask(now))
            // After a burst of frames, events may wait to be read.
            .or_else(|| self.announcer.as_mut().filter(|_| is_current)?.next_action(now))
            .or_else(|| self.notify_manager(now))
            // A hanging disk must not delay anything else.
            .or_else(|| self.write_metrics())
            .or_else(|| self.file_check.next_action(now))
            .or_else(|| self.namespace.next_action(now))
            .or_else(|| self.keepalived.as_mut()?.next_action(now))
            .or_else(|| self.exit_if_due(now))
    }

    /// Returns when [`super::Input::QueueEmpty`] is due. None: after the next event.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let is_known = self.is_known();
        let has_single = self.vip.unknown_link().is_some() || self.wanted_link().is_some();
        let has_carrier = self.vip.has_carrier();
        let conntrack = self.conntrack.as_ref().filter(|_| !self.exit.is_pending());
        let hook = self.hook.as_ref().filter(|hook| self.exit.allows_hook(hook.runs.newest));
        let timers = [
            self.resync.deadline(has_single),
            // The answer about the state, and listed addresses to announce, wait for the queue to be read.
            self.vip.is_answered().then_some(Instant::ZERO),
            self.announcer.as_ref().is_some_and(|a| a.has_waiting).then_some(Instant::ZERO),
            self.state_file.deadline(),
            self.outbox.as_ref().and_then(Outbox::deadline),
            conntrack.and_then(SyncSequence::deadline),
            hook.and_then(HookSchedule::deadline),
            self.detector.as_ref().and_then(|detector| detector.deadline(is_known, has_carrier)),
            self.announcer.as_ref().filter(|_| is_known).and_then(Announcer::deadline),
            self.manager.as_ref().and_then(ManagerNotifier::deadline),
            self.metrics.as_ref().and_then(MetricsSchedule::deadline),
            self.namespace.deadline(),
            self.keepalived.as_ref().map(KeepalivedCheck::deadline),
            self.file_check.deadline(),
            self.exit.deadline(self.hook_delays_exit()),
            self.change.map(|(_, due)| due),
            self.misplaced_line_due(),
            if let DownLine::Due(due) = self.down { Some(due) } else { None },
        ];
        timers.into_iter().flatten().min()
    }

    /// Returns a snapshot for the log and the metrics.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            state: self.reported.map(|(state, _)| state),
            changed_at: self.reported.map(|(_, since)| since),
            ifindex: self.vip.ifindex(),
            undelivered: self.outbox.as_ref().and_then(|outbox| outbox.states.pending()),
            hook_pending: self.hook.as_ref().and_then(|hook| hook.runs.pending()),
            troubles: self.troubles(),
            listens: self.detector.as_ref().is_some_and(|detector| detector.listens(&self.vip)),
            claimant: self.detector.as_ref().and_then(Detector::claimant),
            counters: self.journal.counters,
        }
    }

    /// Returns the state, if the agent does not know it.
    #[must_use]
    pub fn unknown_to_agent(&self) -> Option<State> {
        self.outbox.as_ref()?.unknown()
    }

    /// Returns the current troubles, the worst first.
    pub(super) fn troubles(&self) -> Troubles {
        let agent_fails = self.outbox.as_ref().is_some_and(|outbox| outbox.states.is_failing());
        let hook_fails = self.hook.as_ref().is_some_and(|hook| hook.runs.is_failing());
        let conntrackd_fails = self.conntrack.as_ref().is_some_and(SyncSequence::is_failing);
        let keepalived_gone = self.keepalived.as_ref().is_some_and(|check| check.is_trouble);
        [
            self.detector.as_ref().and_then(Detector::claimant).map(Trouble::SplitBrain),
            self.state_file.writes.is_failing().then_some(Trouble::StateFileFails),
            self.state_file.is_shared.then_some(Trouble::StateFileShared),
            self.state_file.spares.is_failing().then_some(Trouble::SpareFails),
            self.vip.is_interface_absent().then_some(Trouble::InterfaceAbsent),
            self.vip.down_cause().map(Trouble::InterfaceDown),
            self.vip.misplaced().map(|(name, cidr)| Trouble::Misplaced(name, cidr)),
            self.vip.has_duplicate().then_some(Trouble::DuplicateAddress),
            keepalived_gone.then_some(Trouble::KeepalivedGone),
            agent_fails.then_some(Trouble::AgentFails),
            hook_fails.then_some(Trouble::HookFails),
            conntrackd_fails.then_some(Trouble::ConntrackdFails),
            self.log_fails.then_some(Trouble::LogFails),
        ]
    }

    /// Returns whether to log the output of a helper's run that ends now. Of the hook's runs, that is each success, and one
    /// failure a minute.
    #[must_use]
    pub fn logs_output(&self, helper: HelperKind, end: CommandResult, now: Instant) -> bool {
        match helper {
            HelperKind::Conntrackd => self.conntrack.as_ref().is_some_and(|c| c.logs_output(end)),
            HelperKind::Hook => {
                self.hook.as_ref().is_some_and(|hook| hook.logs_output(end, &self.journal, now))
            }
        }
    }

    /// Returns whether the state was known when the queue was last empty: no answer that decides it is pending.
    pub(super) fn is_known(&self) -> bool {
        self.resync.is_known() && !self.vip.is_awaited()
    }

    /// Signals readiness, if that is pending, once the state file holds the reported state.
    fn signal_ready(&mut self) -> Option<Action> {
        let is_reported = self.reported.is_some() && !self.reload_pending;
        if !self.ready_pending || !is_reported || self.state_file.writes.pending().is_some() {
            return None;
        }
        self.ready_pending = false;
        let Some(manager) = &mut self.manager else { return Some(Action::SignalReady) };
        manager.handle_ready();
        None
    }

    /// Notifies the service manager. No status is sent during shutdown.
    fn notify_manager(&mut self, now: Instant) -> Option<Action> {
        self.manager.as_ref()?;
        let troubles = self.troubles();
        let shown = self.reported.filter(|_| !self.exit.is_pending());
        let status = shown.map(|(state, _)| (state, &troubles));
        self.manager.as_mut()?.next_action(status, now)
    }

    fn write_metrics(&mut self) -> Option<Action> {
        self.metrics.as_ref()?;
        let status = self.status();
        let metrics = self.metrics.as_mut().filter(|_| status.state.is_some())?;
        metrics.follow(&status);
        metrics.next_action()
    }

    fn run_hook(&mut self, now: Instant) -> Option<Action> {
        let hook = self.hook.as_mut()?;
        if self.exit.allows_hook(hook.runs.newest) { hook.next_action(now) } else { None }
    }

    /// Returns whether an exit after a signal waits for the hook.
    fn hook_delays_exit(&self) -> bool {
        let is_signal = matches!(self.exit.reason(), Some(ExitReason::Signal(_)));
        is_signal && self.hook.as_ref().is_some_and(HookSchedule::delays_exit)
    }

    fn exit_if_due(&self, now: Instant) -> Option<Action> {
        let outbox = self.outbox.as_ref();
        let is_known = self.is_known();
        let is_written = self.state_file.writes.pending().is_none();
        let is_delivered =
            is_written && outbox.is_none_or(|outbox| outbox.states.pending().is_none());
        let is_reported = match self.exit.reason()? {
            // A full disk or an absent agent does not delay the exit.
            ExitReason::Signal(_) => is_known,
            ExitReason::Superseded => true,
            ExitReason::HelperGone(_) | ExitReason::SourceFailed(_) => is_known && is_delivered,
            ExitReason::NamespaceGone => {
                is_delivered && self.hook.as_ref().is_none_or(|hook| hook.runs.pending().is_none())
            }
        };
        let is_connected = outbox.is_some_and(Outbox::is_connected);
        self.exit.next_action(is_reported && !is_connected, self.hook_delays_exit(), now)
    }
}
