//! Connection tracking: conntrackd's commands on each transition, one after another.
//!
//! If a command fails, it and those after it are repeated with growing waits, until a round of them succeeds or the state
//! changes. What a repetition costs, by conntrackd's source (1.4.9): `-t` nothing while its timer runs, `-R` a dump of the
//! kernel's table, `-B` and `-n` a message between the nodes for each connection.
//!
//! A conntrackd that was restarted has lost what the commands gave it. It is found by its control socket.

use super::backoff::Backoff;
use super::journal::Journal;
use super::{Action, CommandResult, Duration, Instant, LimitedEvent, LogEvent, State, SyncCommand};
use crate::errno::Errno;

/// How long to wait for the configuration, which Neutron's agent writes after it has started the monitor. Neutron's
/// functional tests have no configuration, and wait 15 s for the end of the commands.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to retry while the configuration is missing.
const RETRY: Duration = Duration::from_secs(1);
/// From the end of the commands, or from a check that conntrackd is the same, to the next check.
const CHECK: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct SyncSequence {
    state: State,
    /// The commands that run one after another.
    round: &'static [SyncCommand],
    /// Those of them that are left.
    rest: &'static [SyncCommand],
    /// Those of them to repeat: the first that has failed, and all after it.
    failed: Option<&'static [SyncCommand]>,
    /// The last round has failed, so this one repeats its end.
    repeats: bool,
    /// The last failure of each command, until it succeeds. One that ends likewise again has no line.
    logged: heapless::Vec<(SyncCommand, CommandResult), 6>,
    running: Option<Running>,
    /// When to start the rest, or without a rest to check conntrackd.
    due: Option<Instant>,
    backoff: Backoff,
    /// When the configuration was first found missing for the commands of this state.
    unconfigured_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Running {
    /// A command, and those after it in its round.
    Command(SyncCommand, &'static [SyncCommand]),
    /// A command of an earlier state.
    Outdated(SyncCommand),
    /// A check that conntrackd is the same.
    Check,
}

impl SyncSequence {
    pub(super) fn new(seed: u32) -> Self {
        Self {
            state: State::Backup,
            round: &[],
            rest: &[],
            failed: None,
            repeats: false,
            logged: heapless::Vec::new(),
            running: None,
            due: None,
            backoff: Backoff::of_programs(seed),
            unconfigured_since: None,
        }
    }

    /// Queues the commands of a new state, in place of the remaining commands of the last.
    pub(super) fn post(&mut self, state: State) {
        use SyncCommand::{Bulk, Commit, Control, Flush, Resync, Timers};
        self.state = state;
        self.repeats = false;
        self.logged.clear();
        self.unconfigured_since = None;
        self.backoff.reset();
        if let Some(Running::Command(command, _)) = self.running {
            self.running = Some(Running::Outdated(command));
        }
        let commands: &[_] = match state {
            State::Active => &[Commit, Flush, Resync, Bulk],
            State::Backup => &[Timers, Control],
        };
        self.begin_round(commands, Instant::ZERO);
    }

    fn begin_round(&mut self, commands: &'static [SyncCommand], due: Instant) {
        (self.round, self.rest, self.due) = (commands, commands, Some(due));
        self.failed = None;
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        let is_missing = end == CommandResult::NotConfigured(Errno::NOT_FOUND);
        match self.running.take() {
            None => {}
            Some(Running::Check) => self.handle_check(end, journal, now),
            // It has not run, and need not: a new state has replaced its own.
            Some(Running::Outdated(_)) if is_missing => {}
            Some(Running::Outdated(command)) => count(command, end, true, journal),
            Some(Running::Command(command, later)) => {
                if is_missing && self.wait_for_configuration(journal, now) {
                    return;
                }
                count(command, end, self.is_news(command, end), journal);
                self.logged.retain(|(known, _)| *known != command);
                if end != CommandResult::Exited(0) {
                    self.failed.get_or_insert(later);
                    // There is room for every command.
                    let _ = self.logged.push((command, end));
                }
                if is_missing {
                    self.rest = &[];
                } else {
                    journal.end_failures(|event| *event == LimitedEvent::ConntrackdUnconfigured);
                }
                if self.rest.is_empty() {
                    self.end_round(is_missing, journal, now);
                }
            }
        }
    }

    /// Retries all commands of the round, unless the configuration has been missing for too long. Returns whether it does.
    fn wait_for_configuration(&mut self, journal: &mut Journal, now: Instant) -> bool {
        let since = *self.unconfigured_since.get_or_insert(now);
        let waits = now < since + CONFIGURATION_TIMEOUT;
        if waits {
            self.begin_round(self.round, now + RETRY);
            journal.log_limited(LimitedEvent::ConntrackdUnconfigured, now);
        }
        waits
    }

    /// Schedules a check, or after a failure another round.
    fn end_round(&mut self, is_missing: bool, journal: &mut Journal, now: Instant) {
        let done = self.failed.is_none();
        // Neutron's functional tests have no configuration, and wait for this line.
        if done || (is_missing && !self.repeats) {
            journal.log(LogEvent::Synced { state: self.state, done });
        }
        self.repeats = self.failed.is_some();
        if let Some(commands) = self.failed {
            let due = self.backoff.after_failure(now);
            self.begin_round(commands, due);
        } else {
            self.backoff.reset();
            self.due = Some(now + CHECK);
        }
    }

    /// Handles the answer to a check, which is an exit code: 1 if conntrackd was restarted.
    fn handle_check(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        if !self.rest.is_empty() {
            // A new state has its commands.
            return;
        }
        self.due = Some(now + CHECK);
        if end == CommandResult::Exited(1) {
            journal.log(LogEvent::ConntrackdRestarted);
            // The other commands of the state would commit and flush.
            let commands: &[_] = match self.state {
                State::Active => &[SyncCommand::Bulk],
                State::Backup => &[SyncCommand::Control],
            };
            self.begin_round(commands, now);
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.deadline().filter(|due| now >= *due)?;
        let commands = self.rest;
        let Some((&command, rest)) = commands.split_first() else {
            self.running = Some(Running::Check);
            return Some(Action::CheckConntrackd);
        };
        (self.rest, self.running) = (rest, Some(Running::Command(command, commands)));
        Some(Action::Sync(command))
    }

    /// Returns whether a command of the state has failed, and has not succeeded since.
    pub(super) fn is_failing(&self) -> bool {
        self.repeats || self.failed.is_some()
    }

    fn is_news(&self, command: SyncCommand, end: CommandResult) -> bool {
        !self.logged.contains(&(command, end))
    }

    /// Returns whether to log the output of the run that ends now: not of a failure that repeats.
    pub(super) fn logs_output(&self, end: CommandResult) -> bool {
        match self.running {
            Some(Running::Command(command, _)) => self.is_news(command, end),
            _ => true,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.filter(|_| self.running.is_none())
    }
}

fn count(command: SyncCommand, end: CommandResult, has_line: bool, journal: &mut Journal) {
    journal.counters.commands += 1;
    if end == CommandResult::Exited(0) {
        return;
    }
    journal.counters.command_failures += 1;
    if has_line {
        journal.log(LogEvent::CommandFailed { command, end });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_configuration_is_retried_each_second_for_ten_seconds() {
        let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
        sync.post(State::Backup);
        for second in 0..=10 {
            assert_eq!(journal.counters.commands, 0, "before {second} s");
            let now = Instant::from_secs(second);
            assert!(sync.next_action(now).is_some());
            let missing = CommandResult::NotConfigured(Errno::NOT_FOUND);
            sync.handle_end(missing, &mut journal, now);
            assert_eq!(sync.next_action(now), None);
        }
        let again = sync.deadline().map(|due| (due - Instant::from_secs(10)).total_millis());
        assert!(again.is_some_and(|wait| (500..=900).contains(&wait)), "{again:?}");
        let last = core::iter::from_fn(|| journal.next_action()).last();
        assert_eq!(last, Some(Action::Log(LogEvent::Synced { state: State::Backup, done: false })));
    }

    /// Only from the first that has failed, with a line for each way in which one fails.
    #[test]
    fn failed_commands_are_repeated_until_they_succeed() {
        use SyncCommand::{Bulk, Commit, Flush, Resync};
        let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
        let synced = LogEvent::Synced { state: State::Active, done: true };
        let failed = |command| LogEvent::CommandFailed { command, end: CommandResult::Exited(1) };
        sync.post(State::Active);
        let mut now = Instant::ZERO;
        for (commands, lines) in [
            (&[(Commit, 0), (Flush, 1), (Resync, 1), (Bulk, 0)][..], &[Flush, Resync][..]),
            (&[(Flush, 1), (Resync, 0), (Bulk, 0)], &[]),
            (&[(Flush, 0), (Resync, 1), (Bulk, 1)], &[Resync, Bulk]),
            (&[(Resync, 0), (Bulk, 0)], &[]),
        ] {
            for (command, code) in commands {
                now = sync.deadline().unwrap();
                assert_eq!(sync.next_action(now), Some(Action::Sync(*command)));
                let end = CommandResult::Exited(*code);
                assert_eq!(sync.logs_output(end), *code == 0 || !lines.is_empty());
                sync.handle_end(end, &mut journal, now);
            }
            let is_last = !sync.is_failing();
            let mut lines: std::vec::Vec<_> = lines.iter().copied().map(failed).collect();
            if is_last {
                lines.push(synced);
            }
            let logged: std::vec::Vec<_> = core::iter::from_fn(|| journal.next_action()).collect();
            assert_eq!(logged, lines.into_iter().map(Action::Log).collect::<std::vec::Vec<_>>());
        }
        assert!(!sync.is_failing() && now > Instant::from_secs(3), "{now}");
        assert_eq!(sync.deadline(), Some(now + CHECK));
        // After the success, the waits begin anew.
        now += CHECK;
        assert_eq!(sync.next_action(now), Some(Action::CheckConntrackd));
        sync.handle_end(CommandResult::Exited(1), &mut journal, now);
        assert_eq!(sync.next_action(now), Some(Action::Sync(Bulk)));
        sync.handle_end(CommandResult::Exited(1), &mut journal, now);
        assert!(sync.deadline().unwrap() < now + RETRY);
    }

    #[test]
    fn commands_of_a_new_state_do_not_wait_for_a_check() {
        for restarted in [0, 1] {
            let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
            sync.post(State::Backup);
            while let Some(Action::Sync(_)) = sync.next_action(Instant::ZERO) {
                sync.handle_end(CommandResult::Exited(0), &mut journal, Instant::ZERO);
            }
            let now = Instant::ZERO + CHECK;
            assert_eq!(sync.next_action(now), Some(Action::CheckConntrackd));
            sync.post(State::Active);
            sync.handle_end(CommandResult::Exited(restarted), &mut journal, now);
            assert_eq!(sync.next_action(now), Some(Action::Sync(SyncCommand::Commit)));
        }
    }

    #[test]
    fn conntrackd_that_was_restarted_is_filled_again() {
        for (state, command) in
            [(State::Active, SyncCommand::Bulk), (State::Backup, SyncCommand::Control)]
        {
            let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
            sync.post(state);
            while let Some(Action::Sync(_)) = sync.next_action(Instant::ZERO) {
                sync.handle_end(CommandResult::Exited(0), &mut journal, Instant::ZERO);
            }
            for (second, restarted) in [(30, 0), (60, 1)] {
                let now = Instant::from_secs(second);
                assert_eq!(sync.deadline(), Some(now));
                assert_eq!(sync.next_action(now), Some(Action::CheckConntrackd));
                sync.handle_end(CommandResult::Exited(restarted), &mut journal, now);
            }
            let now = Instant::from_secs(60);
            assert_eq!(sync.next_action(now), Some(Action::Sync(command)), "only this one");
            sync.handle_end(CommandResult::Exited(0), &mut journal, now);
            assert_eq!(sync.deadline(), Some(now + CHECK));
        }
    }

    #[test]
    fn missing_configuration_is_no_failure_of_a_command_that_a_new_state_replaced() {
        let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
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
            let (mut sync, mut journal) = (SyncSequence::new(1), Journal::default());
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
