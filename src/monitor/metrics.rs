//! The metrics file: when it is written.
//!
//! After a report and on request at once. Otherwise as soon as a figure differs from what the file says, but at
//! most every 15 s. So there is a deadline only while it does.

use super::{Counters, Duration, Instant, Status};

/// From one write to the next, if only figures have changed.
const PERIOD: Duration = Duration::from_secs(15);

/// How far the writing of the metrics file has come.
#[derive(Debug)]
pub(super) struct Metrics {
    /// What it says, as far as that counts. None: nothing yet.
    written: Option<Status>,
    /// It is to be written at once.
    requested: bool,
    /// It is not written before this for figures alone.
    not_before: Instant,
}

/// What it is written for. A host's addresses may come and go all day, and where the interface is and who has
/// claimed the VIP is no figure.
fn figures(status: &Status) -> Status {
    let counters = Counters { events: 0, ..status.counters };
    Status { ifindex: None, claimant: None, counters, ..*status }
}

impl Metrics {
    pub(super) fn new() -> Self {
        Self { written: None, requested: false, not_before: Instant::ZERO }
    }

    /// Has it written at once.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Begins a write, if it is time. Returns whether it is.
    pub(super) fn begin(&mut self, status: &Status, now: Instant) -> bool {
        let due = self.deadline(status).is_some_and(|deadline| now >= deadline);
        if !due && !self.requested {
            return false;
        }
        (self.requested, self.not_before) = (false, now + PERIOD);
        true
    }

    /// Handles a write that has just ended, with this status.
    pub(super) fn on_written(&mut self, status: &Status, now: Instant) {
        self.written = Some(figures(status));
        self.not_before = now + PERIOD;
    }

    /// Handles a write that failed: it is tried again later.
    pub(super) fn on_failed(&mut self, now: Instant) {
        self.written = None;
        self.not_before = now + PERIOD;
    }

    /// When to write what has changed.
    pub(super) fn deadline(&self, status: &Status) -> Option<Instant> {
        (self.written != Some(figures(status))).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::State;

    fn status(claims: u64, events: u64) -> Status {
        let counters = Counters { events, claims, ..Counters::default() };
        Status { state: Some(State::Active), counters, ..Status::default() }
    }

    #[test]
    fn what_has_changed_is_written_every_15_seconds_at_most() {
        let at = Instant::from_secs;
        let mut metrics = Metrics::new();
        assert!(metrics.begin(&status(0, 1), at(0)), "nothing is written yet");
        metrics.on_written(&status(0, 1), at(2));
        for events in 1..100 {
            assert_eq!(metrics.deadline(&status(0, events)), None, "events are not written for");
            assert!(!metrics.begin(&status(0, events), at(99)));
        }
        assert_eq!(metrics.deadline(&status(1, 1)), Some(at(17)));
        assert!(!metrics.begin(&status(1, 1), at(16)));
        assert!(metrics.begin(&status(1, 1), at(17)));
        metrics.on_failed(at(20));
        assert_eq!(metrics.deadline(&status(1, 1)), Some(at(35)), "it is tried again");
        metrics.request();
        assert!(metrics.begin(&status(1, 1), at(21)), "what is asked for does not wait");
        assert!(!metrics.begin(&status(2, 1), at(22)), "once");
        metrics.on_written(&status(2, 1), at(22));
        metrics.request();
        assert!(metrics.begin(&status(2, 1), at(23)), "even if nothing has changed");
    }
}
