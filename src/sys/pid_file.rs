//! The pid file, whose lock keeps a second instance out.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;

use nix::errno::Errno as NixErrno;
use nix::unistd::ftruncate;

use super::files::{is_at, unlink};
use crate::errno::Errno;

/// A locked pid file, removed when dropped. The lock ends with the process, so a new daemon takes a stale file over.
#[derive(Debug)]
pub struct PidFile {
    path: CString,
    /// Holds the lock.
    file: File,
}

impl PidFile {
    /// Writes this process's pid into a locked file: digits, no newline. Removes the file if that fails.
    pub(crate) fn write(path: CString, file: File) -> Result<Self, Errno> {
        let mut locked = Self { path, file };
        // A reader may find the file empty, but never digits of two pids.
        locked.file.set_len(0)?;
        write!(locked.file, "{}", std::process::id())?;
        Ok(locked)
    }

    /// Returns whether the file at the path is still this daemon's. A directory that may not be searched hides no other.
    pub fn is_own(&self) -> bool {
        let gone = [NixErrno::ENOENT, NixErrno::ENOTDIR].map(Err);
        let found = is_at(&self.path, &self.file);
        found != Ok(false) && !gone.contains(&found)
    }
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another instance's, which Neutron's agent may have started.
    fn drop(&mut self) {
        // A user without rights to the directory can still empty the file. A successor takes over what is left.
        if self.is_own() && unlink(&self.path).is_err() {
            let _ = ftruncate(&self.file, 0);
        }
    }
}
