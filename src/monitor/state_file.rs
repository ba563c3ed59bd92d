//! The state file: writes the newest state, prepares the file of the other state, and retries both.

use super::delivery::Delivery;
use super::journal::Journal;
use super::{Action, FoundStateFile, Instant, LimitedEvent, LogEvent, State};
use crate::errno::Errno;

#[derive(Debug)]
pub(super) struct StateFile {
    pub(super) writes: Delivery<State>,
    /// The preparations for the change after this state, reported at this time.
    pub(super) spares: Delivery<(State, Instant)>,
    /// Another process has replaced the file between the last two checks.
    pub(super) is_shared: bool,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { writes: Delivery::new(seed), spares: Delivery::new(seed), is_shared: false }
    }

    /// Handles the result of a write of the state reported at `since`. A failed one is retried later.
    pub(super) fn handle_write(
        &mut self,
        result: Result<(), Errno>,
        since: Instant,
        journal: &mut Journal,
        now: Instant,
    ) {
        match result {
            Ok(()) => {
                let Some((state, _)) = self.writes.succeed() else { return };
                self.spares.post((state, since), now);
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

    /// Handles the result of a preparation. A failed one is retried later; a change meanwhile writes a new file.
    pub(super) fn handle_preparation(
        &mut self,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        let Err(errno) = result else {
            self.spares.succeed();
            return journal.end_failures(|event| matches!(event, LimitedEvent::NotPrepared { .. }));
        };
        if self.spares.fail(|backoff| backoff.after_failure(now)).is_some() {
            journal.log_limited(LimitedEvent::NotPrepared { errno }, now);
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
        match found {
            FoundStateFile::Intact => {}
            FoundStateFile::WithoutSpare => self.spares.repeat(now),
            FoundStateFile::Changed => {
                journal.log_limited(LimitedEvent::StateFileChanged, now);
                self.writes.repeat(now);
            }
            FoundStateFile::Foreign => self.writes.repeat(now),
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.writes.begin(now).map(Action::WriteState)
    }

    /// Returns the preparation that is due, if any.
    pub(super) fn prepare(&mut self, now: Instant) -> Option<Action> {
        let (state, since) = self.spares.begin(now)?;
        Some(Action::PrepareState { state, since })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.writes.deadline().into_iter().chain(self.spares.deadline()).min()
    }
}
