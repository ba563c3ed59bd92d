//! When to look whether the network namespace is still there.

use super::{Action, Duration, Instant};

/// From one look to the next at least: where containers come and go, something is mounted all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// How it is noticed that the network namespace may have been deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceCheck {
    /// It cannot be.
    Never,
    /// [`super::Input::MountsChanged`].
    WhenMountsChange,
    /// By nothing: it has to be looked at this often.
    Every(Duration),
}

#[derive(Debug)]
pub(super) struct NamespaceLook {
    check: NamespaceCheck,
    due: Option<Instant>,
    not_before: Instant,
}

impl NamespaceLook {
    /// The first is due at once: it may have been deleted since it was entered.
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
