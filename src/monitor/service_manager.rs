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

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    #[test]
    fn signs_of_life_are_due_once_it_is_up() {
        let at = Instant::from_secs;
        let mut manager = ServiceManager::new(Some(PERIOD));
        assert!(!manager.begin_sign(at(100)) && manager.deadline().is_none());
        manager.on_ready(at(100));
        assert!(!manager.begin_sign(at(114)) && manager.begin_sign(at(116)));
        manager.on_ready(at(120));
        assert_eq!(manager.deadline(), Some(at(131)), "it counts from the last one");
        let mut indifferent = ServiceManager::new(None);
        indifferent.on_ready(at(100));
        assert!(!indifferent.begin_sign(at(1000)) && indifferent.deadline().is_none());
    }

    #[test]
    fn each_summary_is_told_once() {
        let mut manager = ServiceManager::new(None);
        for (state, is_absent, told) in [
            (State::Backup, true, Some(Summary::InterfaceMissing)),
            (State::Backup, true, None),
            (State::Backup, false, Some(Summary::Backup)),
            (State::Active, false, Some(Summary::Active)),
            (State::Active, false, None),
        ] {
            assert_eq!(manager.update(state, is_absent), told);
        }
    }
}
