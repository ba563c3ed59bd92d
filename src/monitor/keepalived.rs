//! When to check that keepalived runs, and since when it has not: a backup whose keepalived is dead looks like any other.

use super::journal::Journal;
use super::{Action, Duration, Instant, LimitedEvent};

/// The time between two checks while keepalived runs.
const PERIOD: Duration = Duration::from_secs(10);
/// The time between two checks while it does not.
const PERIOD_IF_GONE: Duration = Duration::from_secs(2);
/// How long it may be away, as for a restart.
const GRACE: Duration = Duration::from_secs(10);

/// What [`Action::CheckKeepalived`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepalived {
    /// It runs.
    Runs,
    /// It does not run.
    Gone,
    /// Its process cannot be seen, as in another container.
    Unknown,
}

#[derive(Debug)]
pub(super) struct KeepalivedCheck {
    due: Instant,
    /// When keepalived was first found gone.
    gone_since: Option<Instant>,
    pub(super) is_trouble: bool,
}

impl KeepalivedCheck {
    /// Returns a schedule whose first check is due at this time.
    pub(super) fn new(due: Instant) -> Self {
        Self { due, gone_since: None, is_trouble: false }
    }

    pub(super) fn handle_check(&mut self, found: Keepalived, journal: &mut Journal, now: Instant) {
        if found != Keepalived::Gone {
            *self = Self::new(now + PERIOD);
            return journal.end_failures(|event| *event == LimitedEvent::KeepalivedGone);
        }
        let since = *self.gone_since.get_or_insert(now);
        self.due = now + PERIOD_IF_GONE;
        self.is_trouble = now >= since + GRACE;
        if self.is_trouble {
            journal.log_limited(LimitedEvent::KeepalivedGone, now);
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        (now >= self.due).then_some(Action::CheckKeepalived)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.due
    }
}
