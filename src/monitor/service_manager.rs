//! What a service manager is sent, and when it wants a sign of life.

use super::{Action, Duration, Instant, State, Troubles};

/// A message to a service manager (`sd_notify(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerNotice {
    /// The state, for people to see.
    Status {
        /// The state.
        state: State,
        /// What is wrong.
        troubles: Troubles,
    },
    /// Everything is being read and reported again since this time. [`super::Action::SignalReady`] follows.
    Reloading(Instant),
    /// The daemon begins to end.
    Stopping,
    /// The loop works: all that had come has been read.
    Alive,
}

#[derive(Debug, Default)]
pub(super) struct ManagerNotifier {
    /// Yet to be sent.
    reloading: Option<Instant>,
    stopping: bool,
    shown: Option<ManagerNotice>,
    /// How often it wants a sign of life, if at all.
    watchdog: Option<Duration>,
    /// When the next is due, once the daemon is up.
    sign_due: Option<Instant>,
    is_alive: bool,
}

impl ManagerNotifier {
    pub(super) fn new(watchdog: Option<Duration>) -> Self {
        Self { watchdog, ..Self::default() }
    }

    /// Handles that the daemon is up: signs of life are counted from now on.
    pub(super) fn handle_ready(&mut self, now: Instant) {
        if self.sign_due.is_none() {
            self.sign_due = self.watchdog.map(|period| now + period);
        }
    }

    pub(super) fn handle_reload(&mut self, now: Instant) {
        self.reloading = Some(now);
    }

    pub(super) fn handle_exit_begun(&mut self) {
        self.stopping = true;
    }

    /// Handles that the loop has come round, which is what a sign of life says.
    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        if self.sign_due.is_some_and(|due| now >= due) {
            self.sign_due = self.watchdog.map(|period| now + period);
            self.is_alive = true;
        }
    }

    /// `status` is what there is to be seen, if anything.
    pub(super) fn next_action(&mut self, status: Option<ManagerNotice>) -> Option<Action> {
        let notice = if let Some(since) = self.reloading.take() {
            ManagerNotice::Reloading(since)
        } else if core::mem::take(&mut self.stopping) {
            ManagerNotice::Stopping
        } else if status.is_some() && status != self.shown {
            self.shown = status;
            status?
        } else {
            core::mem::take(&mut self.is_alive).then_some(ManagerNotice::Alive)?
        };
        Some(Action::TellManager(notice))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sign_due
    }
}
