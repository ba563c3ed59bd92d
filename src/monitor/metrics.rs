//! The metrics file: when it is written.
//!
//! After a report and on request at once. Otherwise as soon as a figure differs from what the file says, but at
//! most every 15 s. So there is a deadline only while it does.

use super::{Counters, Duration, Instant};

/// From one write to the next, if only figures have changed.
const PERIOD: Duration = Duration::from_secs(15);

/// How far the writing of the metrics file has come.
#[derive(Debug)]
pub(super) struct Metrics {
    /// What it says. None: that is not known.
    written: Option<Counters>,
    /// It is to be written at once.
    requested: bool,
    /// It is not written before this for figures alone.
    not_before: Instant,
}

/// What it is written for: all that is counted but events. A host's addresses may come and go all day, so they
/// alone are no reason.
fn noteworthy(counters: &Counters) -> Counters {
    Counters { events: 0, ..*counters }
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
    pub(super) fn begin(&mut self, counters: &Counters, now: Instant) -> bool {
        let due = self.deadline(counters).is_some_and(|deadline| now >= deadline);
        if !due && !self.requested {
            return false;
        }
        (self.requested, self.not_before) = (false, now + PERIOD);
        true
    }

    /// Handles the end of a write, with these figures. None: it failed, and is tried again later.
    pub(super) fn end(&mut self, counters: Option<&Counters>, now: Instant) {
        self.written = counters.map(noteworthy);
        self.not_before = now + PERIOD;
    }

    /// When to write what has changed.
    pub(super) fn deadline(&self, counters: &Counters) -> Option<Instant> {
        (self.written != Some(noteworthy(counters))).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(claims: u64, events: u64) -> Counters {
        Counters { events, claims, ..Counters::default() }
    }

    #[test]
    fn what_has_changed_is_written_every_15_seconds_at_most() {
        let at = Instant::from_secs;
        let mut metrics = Metrics::new();
        assert!(metrics.begin(&counters(0, 1), at(0)), "nothing is written yet");
        metrics.end(Some(&counters(0, 1)), at(2));
        for events in 1..100 {
            assert_eq!(metrics.deadline(&counters(0, events)), None, "events are not written for");
            assert!(!metrics.begin(&counters(0, events), at(99)));
        }
        assert_eq!(metrics.deadline(&counters(1, 1)), Some(at(17)));
        assert!(!metrics.begin(&counters(1, 1), at(16)));
        assert!(metrics.begin(&counters(1, 1), at(17)));
        metrics.end(None, at(20));
        assert_eq!(metrics.deadline(&counters(1, 1)), Some(at(35)), "it is tried again");
        metrics.request();
        assert!(metrics.begin(&counters(1, 1), at(21)), "what is asked for does not wait");
        assert!(!metrics.begin(&counters(2, 1), at(22)), "once");
        metrics.end(Some(&counters(2, 1)), at(22));
        metrics.request();
        assert!(metrics.begin(&counters(2, 1), at(23)), "even if nothing has changed");
    }
}
