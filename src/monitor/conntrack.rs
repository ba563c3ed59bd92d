//! Connection tracking: conntrackd's commands on each transition, one after another.

use super::journal::Journal;
use super::{Action, CommandResult, Duration, Instant, LimitedEvent, LogEvent, State, SyncCommand};
use crate::errno::Errno;

/// How long to wait for the configuration, which Neutron's agent writes after it has started the monitor. Neutron's
/// functional tests have no configuration, and wait 15 s for the end of the commands.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to retry while the configuration is missing.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct SyncSequence {
    state: State,
    rest: &'static [SyncCommand],
    running: Option<Running>,
    /// At least one command of the state has succeeded.
    one_succeeded: bool,
    /// At least one command of the state has failed.
    pub(super) one_failed: bool,
    not_before: Instant,
    /// When the configuration was first found missing for the commands of this state.
    unconfigured_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    command: SyncCommand,
    /// It is a command of the newest state.
    is_current: bool,
}

impl SyncSequence {
    pub(super) fn new() -> Self {
        Self {
            state: State::Backup,
            rest: &[],
            running: None,
            one_succeeded: false,
            one_failed: false,
            not_before: Instant::ZERO,
            unconfigured_since: None,
        }
    }

    /// Queues the commands of a new state, in place of the remaining commands of the last.
    pub(super) fn post(&mut self, state: State) {
        use SyncCommand::{Bulk, Commit, Control, Flush, Resync, Timers};
        self.state = state;
        self.rest = match state {
            State::Active => &[Commit, Flush, Resync, Bulk],
            State::Backup => &[Timers, Control],
        };
        (self.one_succeeded, self.one_failed) = (false, false);
        (self.not_before, self.unconfigured_since) = (Instant::ZERO, None);
        if let Some(running) = &mut self.running {
            running.is_current = false;
        }
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        let Some(Running { command, is_current }) = self.running.take() else { return };
        let is_configured = end != CommandResult::NotConfigured(Errno::NOT_FOUND);
        if is_configured {
            journal.end_failures(|event| matches!(event, LimitedEvent::ConntrackdUnconfigured));
        } else if !is_current {
            // It has not run, and need not: a new state has replaced its own.
            return;
        } else {
            let since = *self.unconfigured_since.get_or_insert(now);
            if now < since + CONFIGURATION_TIMEOUT {
                // Retries all commands of the state.
                self.post(self.state);
                (self.unconfigured_since, self.not_before) = (Some(since), now + RETRY);
                return journal.log_limited(LimitedEvent::ConntrackdUnconfigured, now);
            }
            self.rest = &[];
        }
        journal.counters.commands += 1;
        let has_succeeded = end == CommandResult::Exited(0);
        if !has_succeeded {
            journal.counters.command_failures += 1;
            journal.log(LogEvent::CommandFailed { command, end });
        }
        if !is_current {
            return;
        }
        self.one_succeeded |= has_succeeded;
        self.one_failed |= !has_succeeded;
        let done = self.one_succeeded;
        // Neutron's functional tests have no configuration, and wait for this line.
        if self.rest.is_empty() && (done || !is_configured) {
            journal.log(LogEvent::Synced { state: self.state, done });
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.deadline().filter(|due| now >= *due)?;
        let (&command, rest) = self.rest.split_first()?;
        (self.rest, self.running) = (rest, Some(Running { command, is_current: true }));
        Some(Action::Sync(command))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let waits = self.running.is_none() && !self.rest.is_empty();
        waits.then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_configuration_is_retried_each_second_for_ten_seconds() {
        let (mut sync, mut journal) = (SyncSequence::new(), Journal::default());
        sync.post(State::Backup);
        for second in 0..=10 {
            assert_eq!(journal.counters.commands, 0, "before {second} s");
            let now = Instant::from_secs(second);
            assert!(sync.next_action(now).is_some());
            let missing = CommandResult::NotConfigured(Errno::NOT_FOUND);
            sync.handle_end(missing, &mut journal, now);
            assert_eq!(sync.next_action(now), None);
        }
        assert_eq!(sync.deadline(), None);
        let last = core::iter::from_fn(|| journal.next_action()).last();
        assert_eq!(last, Some(Action::Log(LogEvent::Synced { state: State::Backup, done: false })));
    }

    #[test]
    fn missing_configuration_is_no_failure_of_a_command_that_a_new_state_replaced() {
        let (mut sync, mut journal) = (SyncSequence::new(), Journal::default());
        sync.post(State::Active);
        assert!(sync.next_action(Instant::ZERO).is_some());
        sync.post(State::Backup);
        let missing = CommandResult::NotConfigured(Errno::NOT_FOUND);
        sync.handle_end(missing, &mut journal, Instant::ZERO);
        assert_eq!((journal.counters.commands, journal.next_action()), (0, None));
        let next = Some(Action::Sync(SyncCommand::Timers));
        assert_eq!(sync.next_action(Instant::ZERO), next);
    }

    #[test]
    fn configuration_that_is_missing_again_has_a_line_at_once() {
        let missing = CommandResult::NotConfigured(Errno::NOT_FOUND);
        for (between, lines) in [(missing, 1), (CommandResult::Exited(0), 2)] {
            let (mut sync, mut journal) = (SyncSequence::new(), Journal::default());
            for (second, end) in (0..).zip([missing, between, missing]) {
                sync.post(State::Backup);
                let now = Instant::from_secs(second);
                assert!(sync.next_action(now).is_some());
                sync.handle_end(end, &mut journal, now);
            }
            let is_meant = |action: &Action| {
                matches!(
                    action,
                    Action::Log(LogEvent::Limited(LimitedEvent::ConntrackdUnconfigured, _))
                )
            };
            let actions = core::iter::from_fn(|| journal.next_action());
            assert_eq!(actions.filter(is_meant).count(), lines);
        }
    }
}
