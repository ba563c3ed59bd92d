//! Connection tracking: what conntrackd is asked to do on each transition, one command after another.

use super::journal::Journal;
use super::{Action, CommandResult, Duration, Instant, LogEvent, Request, State, SyncCommand};
use crate::errno::Errno;

/// How long to wait for the configuration, which Neutron's agent writes after it has started the monitor. Its
/// functional tests have none, and wait 15 s for the end of the commands.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to look for it. The process that runs the commands looks.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct SyncSequence {
    state: State,
    rest: &'static [SyncCommand],
    running: Option<SyncCommand>,
    succeeded: bool,
    not_before: Instant,
    /// Since when there is no configuration for the commands of this state.
    unconfigured_since: Option<Instant>,
}

impl SyncSequence {
    pub(super) fn new() -> Self {
        Self {
            state: State::Backup,
            rest: &[],
            running: None,
            succeeded: false,
            not_before: Instant::ZERO,
            unconfigured_since: None,
        }
    }

    /// Handles a new state, whose commands replace what is left of an older one's.
    pub(super) fn post(&mut self, state: State) {
        const ACTIVE: [SyncCommand; 4] =
            [SyncCommand::Commit, SyncCommand::Flush, SyncCommand::Resync, SyncCommand::Bulk];
        const BACKUP: [SyncCommand; 2] = [SyncCommand::Timers, SyncCommand::Control];
        self.state = state;
        self.rest = match state {
            State::Active => &ACTIVE,
            State::Backup => &BACKUP,
        };
        (self.succeeded, self.not_before, self.unconfigured_since) = (false, Instant::ZERO, None);
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        let Some(command) = self.running.take() else { return };
        let unconfigured = end == CommandResult::NotConfigured(Errno::NOT_FOUND);
        if unconfigured {
            let since = *self.unconfigured_since.get_or_insert(now);
            if now < since + CONFIGURATION_TIMEOUT {
                // All of the state's commands are tried again.
                self.post(self.state);
                (self.unconfigured_since, self.not_before) = (Some(since), now + RETRY);
                return journal.log_limited(|_| LogEvent::ConntrackdUnconfigured, now);
            }
            self.rest = &[];
        }
        journal.counters.commands += 1;
        if end == CommandResult::Exited(0) {
            self.succeeded = true;
        } else {
            journal.counters.command_failures += 1;
            journal.log(LogEvent::CommandFailed { command, end });
        }
        // Neutron's functional tests have no configuration, and wait for this line.
        if self.rest.is_empty() && (self.succeeded || unconfigured) {
            journal.log(LogEvent::Synced(self.state));
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let (command, rest) = self.rest.split_first()?;
        (self.rest, self.running) = (rest, Some(*command));
        Some(Action::Run(Request::Sync(*command)))
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
    fn configuration_is_looked_for_each_second_for_ten() {
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
        assert_eq!(last, Some(Action::Log(LogEvent::Synced(State::Backup))));
    }
}
