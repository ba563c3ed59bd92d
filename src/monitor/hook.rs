//! The hook: what it has yet to be told, one run after another. The newest state wins.
//!
//! A state that comes and goes while the hook runs for the one before is not told. After a run that failed even
//! the state before it is told again: nobody knows how far that run came.

use super::backoff::Backoff;
use super::journal::Journal;
use super::{Action, CommandResult, HookState, Instant, LogEvent, Request};

/// Runs the hook until it has succeeded for the newest state.
#[derive(Debug)]
pub(super) struct HookSchedule {
    newest: Option<HookState>,
    /// The newest state is yet to be told, and not before this.
    run_at: Option<Instant>,
    /// The last run that began was for this state.
    last: Option<HookState>,
    running: bool,
    /// The last run has succeeded, or may yet, and need not be repeated.
    succeeded_or_pending: bool,
    backoff: Backoff,
    failures: u32,
}

impl HookSchedule {
    pub(super) fn new(seed: u32) -> Self {
        Self {
            newest: None,
            run_at: None,
            last: None,
            running: false,
            succeeded_or_pending: false,
            backoff: Backoff::new(seed),
            failures: 0,
        }
    }

    /// Takes the present state. A new one replaces any that has not begun, and does not wait for the failures of
    /// its predecessor; `again` makes one that was told as good as new.
    pub(super) fn post(&mut self, state: HookState, again: bool, now: Instant) {
        if self.newest == Some(state) && !again {
            return;
        }
        if self.newest.replace(state) != Some(state) {
            self.failures = 0;
        }
        self.succeeded_or_pending &= !again;
        let is_told = self.succeeded_or_pending && self.last == Some(state);
        self.run_at = (!is_told).then_some(now);
        self.backoff.reset();
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        (self.last, self.run_at) = (self.newest, None);
        (self.running, self.succeeded_or_pending) = (true, true);
        self.newest.map(|state| Action::Run(Request::Hook(state)))
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        let Some(state) = self.last.filter(|_| self.running) else { return };
        self.running = false;
        journal.counters.hook_runs += 1;
        if end == CommandResult::Exited(0) {
            let failures = core::mem::take(&mut self.failures);
            self.backoff.reset();
            journal.log(LogEvent::HookSucceeded { state, failures });
            journal.end_failures(&LogEvent::HookFailed { state, end, count: 0 });
        } else {
            // Those of another state are over.
            let is_newest = self.newest == Some(state);
            self.failures = if is_newest { self.failures.saturating_add(1) } else { 0 };
            self.succeeded_or_pending = false;
            // What came meanwhile does not wait.
            self.run_at = self.run_at.or_else(|| Some(self.backoff.after_failure(now)));
            journal.counters.hook_failures += 1;
            journal.log_limited(|count| LogEvent::HookFailed { state, end, count }, now);
        }
    }

    /// Whether what it has printed is worth lines in the log: as often as its failure is.
    pub(super) fn logs_output(&self, journal: &Journal, now: Instant) -> bool {
        let end = CommandResult::TimedOut;
        let failure = |state| LogEvent::HookFailed { state, end, count: 0 };
        self.last.is_some_and(|state| journal.would_log(&failure(state), now))
    }

    /// Whether it has failed for the newest state, and has yet to succeed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The newest state, until it has succeeded for that.
    pub(super) fn pending(&self) -> Option<HookState> {
        self.newest.filter(|_| !self.is_done())
    }

    pub(super) fn is_done(&self) -> bool {
        self.run_at.is_none() && !self.running
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.run_at.filter(|_| !self.running)
    }
}
