//! The state file: whether it holds what it has to, and when to try again if it does not.

use super::Instant;
use super::backoff::Backoff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It holds the last state reported, or there is none.
    Written,
    /// The outcome of a write is yet to come.
    Writing,
    /// The last write failed.
    Failed { retry_at: Instant },
}

/// How far the writing of the state file has come.
#[derive(Debug)]
pub(super) struct StateFile {
    progress: Progress,
    backoff: Backoff,
}

impl StateFile {
    pub(super) fn new(seed: u32) -> Self {
        Self { progress: Progress::Written, backoff: Backoff::new(seed) }
    }

    /// A write begins.
    pub(super) fn begin(&mut self) {
        self.progress = Progress::Writing;
    }

    /// Handles a write that succeeded.
    pub(super) fn on_written(&mut self) {
        self.progress = Progress::Written;
        self.backoff.reset();
    }

    /// Handles a write that failed: it is tried again later.
    pub(super) fn on_failed(&mut self, now: Instant) {
        self.progress = Progress::Failed { retry_at: self.backoff.after_failure(now) };
    }

    /// Whether the outcome of a write is yet to come.
    pub(super) fn is_writing(&self) -> bool {
        self.progress == Progress::Writing
    }

    /// Whether it holds the last state reported.
    pub(super) fn is_written(&self) -> bool {
        self.progress == Progress::Written
    }

    /// When to try again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.progress {
            Progress::Failed { retry_at } => Some(retry_at),
            Progress::Written | Progress::Writing => None,
        }
    }
}
