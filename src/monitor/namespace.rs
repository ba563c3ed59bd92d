//! When to check that the network namespace still exists.

use super::{Action, Duration, Instant};

/// The least time between two checks: where containers start and stop, mounts change all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// The wait after a failed check.
const RETRY: Duration = Duration::from_secs(5);

/// How a deletion of the network namespace is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceCheck {
    /// It cannot be deleted while the daemon runs.
    Never,
    /// By [`super::Input::MountsChanged`].
    WhenMountsChange,
    /// By polling this often.
    Every(Duration),
}

#[derive(Debug)]
pub(super) struct NamespaceSchedule {
    check: NamespaceCheck,
    due: Option<Instant>,
    not_before: Instant,
}

impl NamespaceSchedule {
    /// Returns a schedule whose first check is due at once: the namespace may have been deleted since it was entered.
    pub(super) fn new(check: NamespaceCheck) -> Self {
        Self {
            check,
            due: (check != NamespaceCheck::Never).then_some(Instant::ZERO),
            not_before: Instant::ZERO,
        }
    }

    pub(super) fn handle_mounts_changed(&mut self, now: Instant) {
        if self.check == NamespaceCheck::WhenMountsChange {
            self.due = Some(now.max(self.not_before));
        }
    }

    /// Handles that the check failed, or that the next mount will have no event.
    pub(super) fn handle_failed(&mut self, now: Instant) {
        self.due = Some(now + RETRY);
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.due.filter(|due| now >= *due)?;
        self.due = match self.check {
            NamespaceCheck::Every(time) => Some(now + time),
            NamespaceCheck::Never | NamespaceCheck::WhenMountsChange => None,
        };
        self.not_before = now + PAUSE;
        Some(Action::CheckNamespace)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}
