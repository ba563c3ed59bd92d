//! The one-word state file.

use std::path::Path;

use super::atomic_file::{AtomicFile, TemporaryName, write_all};
use super::constants::{Constant, Constants};
use crate::errno::Errno;

/// `<conf_dir>/state`
#[derive(Debug)]
pub struct StateFile(AtomicFile);

impl StateFile {
    /// Makes sure that it can be written; writes nothing.
    ///
    /// # Errors
    /// As [`AtomicFile::new`].
    pub fn new(
        conf_dir: &Path,
        temporary: TemporaryName,
        constants: &mut Constants,
    ) -> Result<Self, Errno> {
        let places = [Constant::ConfDir, Constant::State];
        AtomicFile::new(&conf_dir.join("state"), temporary, places, constants).map(Self)
    }

    /// Makes `word` the content.
    ///
    /// # Errors
    /// As [`AtomicFile::replace`].
    pub fn write(&mut self, word: &str) -> Result<(), Errno> {
        self.0.replace(&mut |file| write_all(file, word.as_bytes())).map(drop)
    }
}
