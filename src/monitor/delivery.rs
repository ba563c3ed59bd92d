//! Delivery of the newest value, for the state file, the agent and the hook.

use super::Instant;
use super::backoff::Backoff;

/// Delivers the newest posted value at once, and retries after a wait. Attempts do not overlap: a newer value waits for
/// the attempt in flight, but not for the retry.
#[derive(Debug)]
pub(super) struct Delivery<T> {
    pub(super) newest: Option<T>,
    /// When the next attempt is due. None: the newest value is delivered or in flight.
    due: Option<Instant>,
    /// The value of the current attempt.
    pub(super) in_flight: Option<T>,
    /// Attempts that have failed since the last success.
    pub(super) failures: u32,
    backoff: Backoff,
}

impl<T: Copy + PartialEq> Delivery<T> {
    pub(super) fn new(seed: u32) -> Self {
        let backoff = Backoff::new(seed);
        Self { newest: None, due: None, in_flight: None, failures: 0, backoff }
    }

    /// Queues a value for delivery at `due`, in place of any older one.
    pub(super) fn post(&mut self, value: T, due: Instant) {
        (self.newest, self.due) = (Some(value), Some(due));
        self.backoff.reset();
    }

    /// Records a value that the consumer has, or that is in flight.
    pub(super) fn post_delivered(&mut self, value: T) {
        (self.newest, self.due) = (Some(value), None);
    }

    /// Queues the newest value for delivery once more, at once, unless it waits for a retry.
    pub(super) fn repeat(&mut self, now: Instant) {
        if self.deadline().is_none() {
            self.due = self.newest.map(|_| now);
        }
    }

    /// Makes an attempt that is scheduled due at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Starts an attempt, if one is due. Returns its value.
    pub(super) fn begin(&mut self, now: Instant) -> Option<T> {
        self.deadline().filter(|due| now >= *due)?;
        (self.due, self.in_flight) = (None, self.newest);
        self.in_flight
    }

    /// Ends the attempt in flight, if any. Returns the delivered value, and the number of failures before.
    pub(super) fn succeed(&mut self) -> Option<(T, u32)> {
        let delivered = self.in_flight.take()?;
        self.backoff.reset();
        Some((delivered, core::mem::take(&mut self.failures)))
    }

    /// Ends the attempt in flight, if any, and schedules the next by `wait`. Returns the value that was not delivered.
    pub(super) fn fail(&mut self, wait: impl FnOnce(&mut Backoff) -> Instant) -> Option<T> {
        let failed = self.in_flight.take()?;
        self.failures = self.failures.saturating_add(1);
        // A newer value is due already, and does not wait.
        if self.newest == Some(failed) || self.due.is_none() {
            self.due = Some(wait(&mut self.backoff));
        }
        Some(failed)
    }

    /// Returns the newest value until it has been delivered.
    pub(super) fn pending(&self) -> Option<T> {
        self.newest.filter(|_| self.due.is_some() || self.in_flight.is_some())
    }

    /// Returns whether the last finished attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.filter(|_| self.in_flight.is_none())
    }
}
