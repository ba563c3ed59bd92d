//! The service manager: pending notices (`sd_notify(3)`), and the watchdog's keep-alives.
//!
//! The queue of its socket may be full: that of systemd in a container takes ten datagrams. So each notice is retried
//! until it has been sent. A notice replaces a pending one of its kind.

use super::backoff::Backoff;
use super::{Action, Duration, Instant, State, Troubles};

/// A message to a service manager (`sd_notify(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerNotice {
    /// A reload started at this time. [`ManagerNotice::Ready`] follows.
    Reloading(Instant),
    /// The state file holds the first state, or the state after a reload.
    Ready,
    /// The daemon is exiting.
    Stopping,
    /// The state and the troubles of [`super::Monitor::status`] have changed.
    Status,
    /// The keep-alive: the loop has read all events.
    Alive,
}

#[derive(Debug)]
pub(super) struct ManagerNotifier {
    reloading: Option<Instant>,
    ready_pending: bool,
    stopping_pending: bool,
    alive_pending: bool,
    /// The last status sent.
    shown: Option<(State, Troubles)>,
    /// The current status, or the one in flight.
    current: Option<(State, Troubles)>,
    /// The notice of the current attempt.
    in_flight: Option<ManagerNotice>,
    /// When to retry after a failed attempt.
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The period of keep-alives, if any.
    watchdog: Option<Duration>,
    /// When the next keep-alive is due, once the manager has been notified of the start.
    alive_due: Option<Instant>,
}

impl ManagerNotifier {
    pub(super) fn new(watchdog: Option<Duration>, seed: u32) -> Self {
        Self {
            reloading: None,
            ready_pending: false,
            stopping_pending: false,
            alive_pending: false,
            shown: None,
            current: None,
            in_flight: None,
            retry_at: None,
            backoff: Backoff::new(seed),
            watchdog,
            alive_due: None,
        }
    }

    /// Handles the completion of the start or of a reload.
    pub(super) fn handle_ready(&mut self) {
        self.ready_pending = true;
    }

    pub(super) fn handle_reload(&mut self, now: Instant) {
        // A pending `Ready` would announce the end of the reload too early.
        (self.reloading, self.ready_pending) = (Some(now), false);
    }

    pub(super) fn handle_exit_begun(&mut self) {
        self.stopping_pending = true;
    }

    /// Queues a keep-alive, if one is due: the loop has read all events.
    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        self.alive_pending |= self.alive_due.take_if(|due| now >= *due).is_some();
    }

    /// Handles the result of an attempt to send a notice.
    pub(super) fn handle_sent(&mut self, is_sent: bool, now: Instant) {
        let Some(notice) = self.in_flight.take() else { return };
        if !is_sent {
            self.retry_at = Some(self.backoff.after_failure(now));
            return;
        }
        self.backoff.reset();
        match notice {
            ManagerNotice::Reloading(_) => self.reloading = None,
            ManagerNotice::Ready => {
                self.ready_pending = false;
                // The watchdog of the service manager starts now.
                if !self.alive_pending {
                    self.alive_due = self.alive_due.or(self.watchdog.map(|period| now + period));
                }
            }
            ManagerNotice::Stopping => self.stopping_pending = false,
            ManagerNotice::Status => self.shown = self.current,
            ManagerNotice::Alive => {
                self.alive_pending = false;
                self.alive_due = self.watchdog.map(|period| now + period);
            }
        }
    }

    /// Returns the most urgent notice. Without a `status` none is sent.
    pub(super) fn next_action(
        &mut self,
        status: Option<(State, &Troubles)>,
        now: Instant,
    ) -> Option<Action> {
        if self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        self.retry_at = None;
        let status = status.map(|(state, troubles)| (state, *troubles));
        let is_new = status.is_some() && status != self.shown;
        self.current = status;
        self.in_flight = (self.reloading.map(ManagerNotice::Reloading))
            .or(self.ready_pending.then_some(ManagerNotice::Ready))
            .or(self.stopping_pending.then_some(ManagerNotice::Stopping))
            .or(is_new.then_some(ManagerNotice::Status))
            .or(self.alive_pending.then_some(ManagerNotice::Alive));
        self.in_flight.map(Action::NotifyManager)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.alive_due.into_iter().chain(self.retry_at).min()
    }
}
