//! The hook: what it has yet to be told, one run after another. The newest state wins.
//!
//! ```text
//!   post                  begin, if not before its time
//!     │       ┌──────┐ ────────────────────────────────► ┌─────────┐
//!     └──────►│ Owed │                                   │ Running │
//!             └──────┘ ◄──────────────────────────────── └────┬────┘
//!                ▲    end: of a run that failed, after a      │ end: of a run that succeeded
//!                │    wait, or of one for another state       │ for the newest state
//!                │    than the newest, at once                ▼
//!                └──────────────────────────────────────── ┌──────┐
//!                                    post                  │ Told │
//!                                                          └──────┘
//! ```
//!
//! A state that comes and goes while the hook runs for the one before is not told. After a run that failed even
//! the state before it is told again: nobody knows how far that run came.

use super::backoff::Backoff;
use super::{Duration, HookCall, HookState, Instant};

/// Of the runs that repeat one that failed, what one prints in this time is worth lines in the log.
const PRINTS_EVERY: Duration = Duration::from_secs(60);

/// Runs the hook until it has succeeded for the newest state.
#[derive(Debug)]
pub(super) struct Hook {
    newest: Option<HookState>,
    /// The newest state is to be told, and not before this.
    owed: Option<Instant>,
    /// The last run that began.
    last: Option<HookCall>,
    /// That is under way.
    running: bool,
    /// That has succeeded, or may yet, and need not be repeated.
    counts: bool,
    backoff: Backoff,
    /// Runs that failed since the last that succeeded.
    failures: u32,
    /// What the last run prints is worth lines in the log.
    prints: bool,
    /// When the last such run began.
    printed: Instant,
}

impl Hook {
    pub(super) fn new(seed: u32) -> Self {
        Self {
            newest: None,
            owed: None,
            last: None,
            running: false,
            counts: false,
            backoff: Backoff::new(seed),
            failures: 0,
            prints: true,
            printed: Instant::ZERO,
        }
    }

    /// Takes the present state. A new one replaces any that has not begun, and does not wait for the failures of
    /// its predecessor; `again` makes one that was told as good as new.
    pub(super) fn post(&mut self, state: HookState, again: bool, now: Instant) {
        if self.newest == Some(state) && !again {
            return;
        }
        self.newest = Some(state);
        self.counts &= !again;
        let is_told = self.counts && self.last.is_some_and(|last| last.state == state);
        self.owed = (!is_told).then_some(now);
        self.backoff.reset();
    }

    /// Begins a run, if one is due.
    pub(super) fn begin(&mut self, now: Instant) -> Option<HookCall> {
        if self.running || self.owed.is_none_or(|at| now < at) {
            return None;
        }
        let state = self.newest?;
        let call = match self.last {
            Some(last) if last.state == state => last,
            last => HookCall { state, previous: last.map(|last| last.state) },
        };
        let repeats = self.failures > 0 && self.last == Some(call);
        self.prints = !repeats || now >= self.printed + PRINTS_EVERY;
        if self.prints {
            self.printed = now;
        }
        (self.last, self.owed) = (Some(call), None);
        (self.running, self.counts) = (true, true);
        self.last
    }

    /// Handles the end of a run. Returns what it was for, and how many runs in a row have failed before it.
    pub(super) fn end(&mut self, succeeded: bool, now: Instant) -> Option<(HookState, u32)> {
        let last = self.last.filter(|_| self.running)?;
        self.running = false;
        let failures = self.failures;
        if succeeded {
            self.failures = 0;
            self.backoff.reset();
        } else {
            self.failures = failures.saturating_add(1);
            self.counts = false;
            // What came meanwhile does not wait.
            self.owed = self.owed.or_else(|| Some(self.backoff.after_failure(now)));
        }
        Some((last.state, failures))
    }

    /// Whether what it prints is worth lines in the log: not of each run that repeats one that failed.
    pub(super) fn prints(&self) -> bool {
        self.prints
    }

    /// Whether it has been told the newest state.
    pub(super) fn is_done(&self) -> bool {
        self.owed.is_none() && !self.running
    }

    /// When to begin the next run.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.owed.filter(|_| !self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HookState::{Backup, Master};

    const T0: Instant = Instant::ZERO;

    /// A hook that has been told this.
    fn told(state: HookState) -> Hook {
        let mut hook = Hook::new(1);
        hook.post(state, false, T0);
        assert_eq!(hook.begin(T0), Some(call(state, None)));
        assert_eq!(hook.end(true, T0), Some((state, 0)));
        assert!(hook.is_done() && hook.deadline().is_none());
        hook
    }

    fn call(state: HookState, previous: impl Into<Option<HookState>>) -> HookCall {
        HookCall { state, previous: previous.into() }
    }

    #[test]
    fn failed_run_is_repeated_with_the_agents_backoff() {
        let mut hook = told(Backup);
        hook.post(Master, false, T0);
        let (mut now, mut backoff) = (T0, Backoff::new(1));
        for failures in 0..20 {
            assert_eq!(hook.begin(now), Some(call(Master, Backup)), "the same call");
            assert_eq!(hook.end(false, now), Some((Master, failures)));
            let at = hook.deadline().unwrap();
            assert_eq!(at, backoff.after_failure(now));
            now = at;
        }
        hook.begin(now);
        assert_eq!(hook.end(true, now), Some((Master, 20)));
        hook.post(Backup, false, now);
        hook.begin(now);
        assert_eq!(hook.end(false, now), Some((Backup, 0)), "counted anew");
        assert!(hook.deadline().unwrap() < now + Duration::from_millis(100));
    }

    #[test]
    fn what_repeats_a_failure_prints_once_a_minute() {
        let mut hook = told(Backup);
        hook.post(Master, false, T0);
        for (seconds, prints) in [(0, true), (1, false), (59, false), (60, true), (61, false)] {
            let now = Instant::from_secs(seconds);
            assert!(hook.begin(now).is_some());
            assert_eq!(hook.prints(), prints, "{seconds}");
            hook.end(false, now);
        }
        let now = Instant::from_secs(62);
        hook.post(Backup, false, now);
        hook.begin(now);
        assert!(hook.prints(), "another state");
        hook.end(true, now);
        hook.post(Master, false, now);
        hook.begin(now);
        assert!(hook.prints());
        hook.end(true, now);
        hook.post(Master, true, now);
        hook.begin(now);
        assert!(hook.prints(), "asked to be repeated");
    }
}
