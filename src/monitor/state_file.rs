//! The state file: writes the newest state, and retries.

use super::delivery::Delivery;
use super::journal::Journal;
use super::{Action, Instant, LimitedEvent, LogEvent, Replaced, State};
use crate::errno::Errno;

#[derive(Debug)]
pub(super) struct StateFile {
    writes: Delivery<State>,
    /// The last write replaced a file of another process.
    is_shared: bool,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { writes: Delivery::new(seed), is_shared: false }
    }

    /// Queues a state to write at once.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        self.writes.post(state, now);
    }

    /// Handles the result of a write. A failed one is retried later.
    pub(super) fn handle_write(
        &mut self,
        result: Result<Replaced, Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        match result {
            Ok(replaced) => {
                let Some((state, _)) = self.writes.succeed() else { return };
                self.is_shared = replaced == Replaced::Foreign;
                journal.counters.writes += 1;
                journal.log(LogEvent::Wrote(state));
                journal.end_failures(|event| matches!(event, LimitedEvent::NotWritten { .. }));
                if self.is_shared {
                    journal.log_limited(LimitedEvent::StateFileShared, now);
                } else {
                    let is_shared = |event: &_| matches!(event, LimitedEvent::StateFileShared);
                    journal.end_failures(is_shared);
                }
            }
            Err(errno) => {
                if self.writes.fail(|backoff| backoff.after_failure(now)).is_some() {
                    journal.counters.write_failures += 1;
                    journal.log_limited(LimitedEvent::NotWritten { errno }, now);
                }
            }
        }
    }

    /// Returns the newest state, until the file holds it.
    pub(super) fn unwritten(&self) -> Option<State> {
        self.writes.pending()
    }

    /// Returns whether the last write replaced a file of another process.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn is_failing(&self) -> bool {
        self.writes.is_failing()
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.writes.begin(now).map(Action::WriteState)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.writes.deadline()
    }
}
