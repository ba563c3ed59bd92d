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
        if self.metrics.is_none() || self.reported.is_none() || self.file.is_writing() {
            return;
        }
        let (status, now) = (self.status(), self.now);
        if self.metrics.as_mut().is_some_and(|metrics| metrics.begin(&status, now)) {
            self.push(Action::WriteMetrics);
        }
    }

    pub(super) fn on_metrics_file(&mut self, result: Result<(), Errno>) {
        let (status, now) = (self.status(), self.now);
        let Some(metrics) = &mut self.metrics else { return };
        match result {
            // Nothing has happened since they were written: what comes of it is told at once.
            Ok(()) => metrics.on_written(&status, now),
            Err(errno) => {
                metrics.on_failed(now);
                self.counters.metrics_failures += 1;
                self.log_limited(|count| LogEvent::MetricsNotWritten { errno, count });
            }
        }
    }

    /// When to write the metrics.
    pub(super) fn metrics_deadline(&self) -> Option<Instant> {
        let metrics = self.metrics.as_ref().filter(|_| self.reported.is_some())?;
        metrics.deadline(&self.status()).filter(|_| !self.file.is_writing())
    }
}
