//! The metrics file.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::atomic_file::{AtomicFile, TemporaryName, write_all};
use super::clock;
use super::constants::{Constant, Constants};
use crate::errno::Errno;
use crate::metrics;
use crate::monitor::Status;

/// The file of `--metrics-file`. It is removed when this is dropped: what is not counted any more is not to be
/// read as if it were.
#[derive(Debug)]
pub struct MetricsFile {
    file: AtomicFile,
    labels: String,
    /// What was written last. It is kept open, so that no other file has its number.
    written: Option<OwnedFd>,
}

impl MetricsFile {
    /// Makes sure that it can be written; writes nothing. `labels` are those of every line.
    ///
    /// # Errors
    /// As [`AtomicFile::new`].
    pub fn new(
        path: &Path,
        labels: String,
        temporary: TemporaryName,
        constants: &mut Constants,
    ) -> Result<Self, Errno> {
        let places = [Constant::MetricsDirectory, Constant::Metrics];
        let file = AtomicFile::new(path, temporary, places, constants)?;
        Ok(Self { file, labels, written: None })
    }

    /// Makes the present figures the content.
    ///
    /// # Errors
    /// As [`AtomicFile::replace`].
    pub fn write(&mut self, status: &Status) -> Result<(), Errno> {
        // By the clock on the wall as it is now: at the time of the change it may have been wrong.
        let changed_at = status.changed_at.map(clock::unix_time).unwrap_or_default();
        let written = self.file.replace(&mut |file| {
            metrics::write(status, changed_at, &self.labels, &mut |piece| write_all(file, piece))
        })?;
        self.written = Some(written);
        Ok(())
    }
}

impl Drop for MetricsFile {
    /// Another daemon of this router may have been started already, and have written its own.
    fn drop(&mut self) {
        if let Some(written) = &self.written {
            self.file.remove(written);
        }
    }
}
