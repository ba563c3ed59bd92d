//! The metrics, which no report waits for.

use super::Monitor;
use crate::errno::Errno;
use crate::monitor::{Action, Instant, LogEvent};

impl Monitor<'_> {
    /// Has the metrics written as soon as what is to be reported has been.
    pub(super) fn request_metrics(&mut self) {
        if let Some(metrics) = &mut self.metrics {
            metrics.request();
        }
    }

    /// Writes the metrics, if it is time for that. A disk may hang, so the state file comes first, and the agent
    /// has been told before.
    pub(super) fn write_metrics(&mut self) {
        if self.reported.is_none() || self.file.is_writing() {
            return;
        }
        let (counters, now) = (&self.counters, self.now);
        if self.metrics.as_mut().is_some_and(|metrics| metrics.begin(counters, now)) {
            self.push(Action::WriteMetrics);
        }
    }

    pub(super) fn on_metrics_file(&mut self, result: Result<(), Errno>) {
        let Some(metrics) = &mut self.metrics else { return };
        // Nothing has happened since they were written: what comes of it is told at once.
        metrics.end(result.ok().map(|()| &self.counters), self.now);
        if let Err(errno) = result {
            self.counters.metrics_failures += 1;
            self.log_limited(&|count| LogEvent::MetricsNotWritten { errno, count });
        }
    }

    /// When to write the metrics.
    pub(super) fn metrics_deadline(&self) -> Option<Instant> {
        let metrics = self.metrics.as_ref().filter(|_| self.reported.is_some())?;
        metrics.deadline(&self.counters).filter(|_| !self.file.is_writing())
    }
}
