//! The hook: one run after another, for the newest state.
//!
//! A state that begins and ends during a run is skipped. A failed run may have done part of its work. So after it the hook
//! is run even if the state is again that of the last successful run.

use core::mem::take;

use super::delivery::Delivery;
use super::journal::Journal;
use super::{Action, CommandResult, HookState, Instant, LimitedEvent, LogEvent};

/// Runs the hook until it has succeeded for the newest state.
#[derive(Debug)]
pub(super) struct HookSchedule {
    pub(super) runs: Delivery<HookState>,
    /// The state of the last run, unless that has failed. This state needs no other run.
    ran_for: Option<HookState>,
    /// A reload has requested a run, whatever the state is once it is known.
    again: bool,
}

impl HookSchedule {
    pub(super) fn new(seed: u32) -> Self {
        Self { runs: Delivery::new(seed), ran_for: None, again: false }
    }

    /// Queues the current state, if that is known, in place of one whose run has not started. `again` forces a run.
    pub(super) fn post(&mut self, state: Option<HookState>, again: bool, now: Instant) {
        self.again |= again;
        let Some(state) = state else { return };
        let again = take(&mut self.again);
        let is_new = self.runs.newest != Some(state);
        if !is_new && !again {
            return;
        }
        if is_new {
            self.runs.failures = 0;
        }
        if again {
            self.ran_for = None;
        }
        if self.ran_for == Some(state) {
            self.runs.post_delivered(state);
        } else {
            self.runs.post(state, now);
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        let state = self.runs.begin(now)?;
        self.ran_for = Some(state);
        Some(Action::RunHook(state))
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        if end == CommandResult::Exited(0) {
            let Some((state, failures)) = self.runs.succeed() else { return };
            journal.log(LogEvent::HookSucceeded { state, failures });
            journal.end_failures(|event| matches!(event, LimitedEvent::HookFailed { .. }));
        } else {
            let Some(state) = self.runs.fail(|backoff| backoff.after_failure(now)) else { return };
            if self.runs.newest != Some(state) {
                self.runs.failures = 0;
            }
            self.ran_for = None;
            journal.counters.hook_failures += 1;
            journal.log_limited(LimitedEvent::HookFailed { state, end }, now);
        }
        journal.counters.hook_runs += 1;
    }

    /// Returns whether to log the output of the run that ends now: always of a success, and of a failure if that has a line.
    pub(super) fn logs_output(&self, end: CommandResult, journal: &Journal, now: Instant) -> bool {
        let failure = |state| LimitedEvent::HookFailed { state, end };
        end == CommandResult::Exited(0)
            || self.runs.in_flight.is_some_and(|state| journal.would_log(&failure(state), now))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.runs.deadline()
    }
}
