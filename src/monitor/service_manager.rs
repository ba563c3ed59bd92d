//! What a service manager is told, and when it wants a sign of life.

use super::{Duration, Instant, State};

/// Something to tell a service manager (`sd_notify(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerNotice {
    /// What there is to be seen by people.
    Summary(Summary),
    /// Everything is being read and reported again since this time. [`super::Action::SignalReady`] follows.
    Reloading(Instant),
    /// The daemon begins to end.
    Stopping,
    /// The loop works: all that had come has been read.
    Alive,
}

/// The state as people want to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// The VIP is on the watched interface.
    Active,
    /// It is not.
    Backup,
    /// Neither is the interface there.
    InterfaceMissing,
}

/// A service manager.
#[derive(Debug)]
pub(super) struct ServiceManager {
    /// What it has been told last.
    shown: Option<Summary>,
    watchdog: Option<Watchdog>,
}

/// Signs of life, wanted from the time when the daemon is up.
#[derive(Debug)]
struct Watchdog {
    period: Duration,
    due: Option<Instant>,
}

impl ServiceManager {
    /// One that wants a sign of life this often, if at all.
    pub(super) fn new(watchdog: Option<Duration>) -> Self {
        let watchdog = watchdog.map(|period| Watchdog { period, due: None });
        Self { shown: None, watchdog }
    }

    /// Handles that it is told that the daemon is up: it counts from now on.
    pub(super) fn on_ready(&mut self, now: Instant) {
        if let Some(Watchdog { period, due }) = &mut self.watchdog {
            due.get_or_insert(now + *period);
        }
    }

    /// Returns what it has to be told now, if anything.
    pub(super) fn update(&mut self, state: State, is_interface_absent: bool) -> Option<Summary> {
        let summary = match state {
            State::Active => Summary::Active,
            State::Backup if is_interface_absent => Summary::InterfaceMissing,
            State::Backup => Summary::Backup,
        };
        let is_new = self.shown.replace(summary) != Some(summary);
        is_new.then_some(summary)
    }

    /// Begins a sign of life, if one is due. Returns whether it was.
    pub(super) fn begin_sign(&mut self, now: Instant) -> bool {
        let is_due = self.deadline().is_some_and(|due| now >= due);
        if is_due && let Some(Watchdog { period, due }) = &mut self.watchdog {
            *due = Some(now + *period);
        }
        is_due
    }

    /// When the next sign of life is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.watchdog.as_ref()?.due
    }
}
