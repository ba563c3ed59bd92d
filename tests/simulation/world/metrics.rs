//! The metrics file, on a disk of its own.

use keepwatch::errno::Errno;
use keepwatch::monitor::{Counters, Duration, Instant, Status};

/// From one write to the next, if nothing was reported nor asked for.
const PERIOD: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct MetricsFile {
    wanted: bool,
    /// Why it cannot be written, if so.
    pub failure: Option<Errno>,
    /// The next write takes so long.
    pub hangs: Duration,
    /// It was asked to report everything again, and may write so often after that.
    pub reloads: u32,
    /// Something was reported or asked for that is to be written at once.
    expected: bool,
    /// What there was to be seen beside what is counted.
    gauges: Status,
    content: Option<Status>,
    /// When the last write ended.
    written: Option<Instant>,
    /// What it does not say yet it has to say by then.
    by: Option<Instant>,
}

impl MetricsFile {
    pub fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// A report or a request is under way, after which it is to be written.
    pub fn expect(&mut self) {
        self.expected = true;
    }

    /// It follows everything but what is counted.
    pub fn follow(&mut self, status: &Status) {
        let gauges = Status { counters: Counters::default(), ..*status };
        self.expected |= self.gauges != gauges;
        self.gauges = gauges;
    }

    pub fn is_expected_no_more(&self) -> bool {
        !self.wanted || !self.expected
    }

    /// At the end of each input.
    pub fn p14_are_written_in_time(
        &mut self,
        status: &Status,
        fed: Instant,
        now: Instant,
        is_queue_empty: bool,
    ) {
        if self.says(status) {
            self.by = None;
        }
        // What has changed just now is written as soon as the queue is empty again.
        let is_in_time = !is_queue_empty || self.expected || self.by.is_none_or(|by| fed < by);
        assert!(is_in_time, "p14_metrics_are_written_in_time");
        if !self.says(status) {
            self.by.get_or_insert(self.written.map_or(now, |written| written + PERIOD));
        }
    }

    /// Returns how long the write takes.
    pub fn begin(&mut self, status: &Status, now: Instant) -> Duration {
        self.by = None;
        assert!(self.wanted && status.state.is_some(), "p14_metrics_have_a_state");
        let rested = self.written.is_none_or(|written| now >= written + PERIOD);
        let in_place = std::mem::take(&mut self.expected) || (rested && !self.says(status));
        if !in_place {
            self.reloads =
                self.reloads.checked_sub(1).expect("p14_metrics_are_written_for_a_reason");
        }
        std::mem::take(&mut self.hangs)
    }

    pub fn write(&mut self, status: &Status, now: Instant) -> Result<(), Errno> {
        self.written = Some(now);
        let content = self.content.replace(*status);
        match self.failure {
            None => return Ok(()),
            // Another instance's is taken for written.
            Some(Errno::EXISTS) => {
                let counters = self.content.as_mut().map(|content| &mut content.counters);
                counters.expect("a content").metrics_failures += 1;
            }
            Some(_) => self.content = content,
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Whether it says this, as far as it has to.
    pub fn says(&self, status: &Status) -> bool {
        let figures = |status: &Status| {
            let counters = Counters { events: 0, ..status.counters };
            Status { counters, ..*status }
        };
        !self.wanted || self.content.as_ref().map(figures) == status.state.map(|_| figures(status))
    }
}
