//! The metrics file, on a disk of its own.

use keepwatch::errno::Errno;
use keepwatch::monitor::{Counters, Duration, Instant, Status};

/// The interval of writes without a report or a request.
const PERIOD: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct MetricsFile {
    wanted: bool,
    /// Why writes fail, if they do.
    pub failure: Option<Errno>,
    /// How long the next write takes.
    pub hangs: Duration,
    /// Another process has removed the file, and the core does not know that yet.
    pub is_removed: bool,
    /// The number of extra writes allowed by reloads.
    pub reloads: u32,
    /// A report or a request must be written at once.
    expected: bool,
    /// The last status without its counters.
    gauges: Status,
    content: Option<Status>,
    /// When the last write ended.
    written: Option<Instant>,
    /// When a changed status must be written.
    by: Option<Instant>,
}

impl MetricsFile {
    pub fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Expects a write after the current report or request.
    pub fn expect(&mut self) {
        self.expected = true;
    }

    /// Tells whether the file has been removed, and then expects a write of a daemon that `stays`.
    pub fn check(&mut self, stays: bool) -> bool {
        let was_removed = self.is_removed && self.content.is_some();
        self.expected |= was_removed && stays;
        was_removed
    }

    /// Expects a write if anything but a counter has changed.
    pub fn follow(&mut self, status: &Status) {
        let gauges = Status { counters: Counters::default(), ..*status };
        self.expected |= self.gauges != gauges;
        self.gauges = gauges;
    }

    pub fn is_expected_no_more(&self) -> bool {
        !self.wanted || !self.expected
    }

    /// Asserts at the end of each input that no write is late.
    pub fn p14_are_written_in_time(
        &mut self,
        status: &Status,
        fed: Instant,
        now: Instant,
        is_queue_empty: bool,
    ) {
        if self.has(status) {
            self.by = None;
        }
        // A change by this input is written once the queue is empty.
        let is_in_time = !is_queue_empty || self.expected || self.by.is_none_or(|by| fed < by);
        assert!(is_in_time, "p14_metrics_are_written_in_time");
        if !self.has(status) {
            self.by.get_or_insert(self.written.map_or(now, |written| written + PERIOD));
        }
    }

    /// Asserts that a write is due. Returns how long it takes.
    pub fn begin(&mut self, status: &Status, now: Instant) -> Duration {
        self.by = None;
        assert!(self.wanted && status.state.is_some(), "p14_metrics_have_a_state");
        let rested = self.written.is_none_or(|written| now >= written + PERIOD);
        let in_place = std::mem::take(&mut self.expected) || (rested && !self.has(status));
        if !in_place {
            self.reloads =
                self.reloads.checked_sub(1).expect("p14_metrics_are_written_for_a_reason");
        }
        std::mem::take(&mut self.hangs)
    }

    pub fn write(&mut self, status: &Status, now: Instant) -> Result<(), Errno> {
        self.written = Some(now);
        self.is_removed = false;
        let content = self.content.replace(*status);
        match self.failure {
            None => return Ok(()),
            // A file of another instance counts as written.
            Some(Errno::EXISTS) => {
                let counters = self.content.as_mut().map(|content| &mut content.counters);
                counters.expect("a content").metrics_failures += 1;
            }
            Some(_) => self.content = content,
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Whether the file has this status, except for the number of events.
    pub fn has(&self, status: &Status) -> bool {
        let figures = |status: &Status| {
            let counters = Counters { events: 0, ..status.counters };
            Status { counters, ..*status }
        };
        !self.wanted || self.content.as_ref().map(figures) == status.state.map(|_| figures(status))
    }
}
