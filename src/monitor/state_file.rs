//! The state file: writes the newest state, and retries.

use super::delivery::Delivery;
use super::journal::Journal;
use super::{Action, Instant, LimitedEvent, LogEvent, Replaced, State};
use crate::errno::Errno;

#[derive(Debug)]
pub(super) struct StateFile {
    pub(super) writes: Delivery<State>,
    /// The last write replaced a file of another process.
    pub(super) is_shared: bool,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { writes: Delivery::new(seed), is_shared: false }
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
                    journal.end_failures(|event| *event == LimitedEvent::StateFileShared);
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

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.writes.begin(now).map(Action::WriteState)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.writes.deadline()
    }
}
