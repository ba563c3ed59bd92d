//! The state file: writes the newest state, and retries.

use super::delivery::Delivery;
use super::journal::Journal;
use super::{Action, FoundStateFile, Instant, LimitedEvent, LogEvent, State};
use crate::errno::Errno;

#[derive(Debug)]
pub(super) struct StateFile {
    pub(super) writes: Delivery<State>,
    /// Another process has replaced the file between the last two checks.
    pub(super) is_shared: bool,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { writes: Delivery::new(seed), is_shared: false }
    }

    /// Handles the result of a write. A failed one is retried later.
    pub(super) fn handle_write(
        &mut self,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        match result {
            Ok(()) => {
                let Some((state, _)) = self.writes.succeed() else { return };
                journal.counters.writes += 1;
                journal.log(LogEvent::Wrote(state));
                journal.end_failures(|event| matches!(event, LimitedEvent::NotWritten { .. }));
            }
            Err(errno) => {
                if self.writes.fail(|backoff| backoff.after_failure(now)).is_some() {
                    journal.counters.write_failures += 1;
                    journal.log_limited(LimitedEvent::NotWritten { errno }, now);
                }
            }
        }
    }

    /// Handles what a check found. A file that is not as it was written is written again.
    pub(super) fn handle_check(
        &mut self,
        found: FoundStateFile,
        journal: &mut Journal,
        now: Instant,
    ) {
        if self.writes.pending().is_some() {
            return;
        }
        self.is_shared = found == FoundStateFile::Foreign;
        if self.is_shared {
            journal.log_limited(LimitedEvent::StateFileShared, now);
        } else {
            journal.end_failures(|event| *event == LimitedEvent::StateFileShared);
        }
        if found != FoundStateFile::Intact {
            self.writes.repeat(now);
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.writes.begin(now).map(Action::WriteState)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.writes.deadline()
    }
}
