//! The state file: which state it does not hold yet, and when to write it.

use super::backoff::Backoff;
use super::journal::Journal;
use super::{Action, Instant, LogEvent, State};
use crate::errno::Errno;

#[derive(Debug)]
pub(super) struct StateFile {
    /// What it does not hold yet, and not to be written before this.
    owed: Option<(State, Instant)>,
    /// Somebody waits for it to hold what is current.
    ready_awaited: bool,
    /// What was to be reported at the start, or again after a reload, has been posted.
    is_current: bool,
    backoff: Backoff,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { owed: None, ready_awaited: true, is_current: false, backoff: Backoff::new(seed) }
    }

    /// Takes a state to be written at once. Unless it `is_current`, another follows, for which readiness waits.
    pub(super) fn post(&mut self, state: State, is_current: bool, now: Instant) {
        (self.owed, self.is_current) = (Some((state, now)), is_current);
    }

    /// Everything is to be written again, for which a service manager waits, if there is one.
    pub(super) fn handle_reload(&mut self, has_manager: bool) {
        self.ready_awaited |= has_manager;
        self.is_current = false;
    }

    /// Handles the result of a write. One that failed is repeated later.
    pub(super) fn handle_write(
        &mut self,
        result: Result<State, Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        match result {
            Ok(state) => {
                self.owed = self.owed.filter(|(owed, _)| *owed != state);
                self.backoff.reset();
                journal.counters.writes += 1;
                journal.log(LogEvent::Wrote(state));
                journal.end_failures(&LogEvent::NotWritten { errno: Errno(0), count: 0 });
            }
            Err(errno) => {
                if let Some((_, not_before)) = &mut self.owed {
                    *not_before = self.backoff.after_failure(now);
                }
                journal.counters.write_failures += 1;
                journal.log_limited(|count| LogEvent::NotWritten { errno, count }, now);
            }
        }
    }

    pub(super) fn is_written(&self) -> bool {
        self.owed.is_none()
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        match self.owed {
            Some((state, not_before)) if now >= not_before => Some(Action::WriteState(state)),
            None if self.is_current && core::mem::take(&mut self.ready_awaited) => {
                Some(Action::SignalReady)
            }
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.owed.map(|(_, not_before)| not_before)
    }
}
