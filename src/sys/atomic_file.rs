//! Files that are whole or not there: the state file and the metrics file.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};

use super::files::{c_path, is_at, unlink};
use crate::errno::Errno;

/// A file that is replaced by renaming a complete one over it, so that a reader sees the old content or the new
/// one.
///
/// No descriptor is kept of its directory, so that one that was replaced or mounted over is followed.
///
/// There is no fsync: after a crash of the machine the content is found out anew.
#[derive(Debug)]
pub struct AtomicFile {
    path: CString,
    /// The path of a new file until it is renamed. It has the pid, as several daemons may write into one directory.
    temporary: CString,
}

impl AtomicFile {
    /// Writes nothing yet, and looks at nothing.
    ///
    /// # Errors
    /// `EINVAL` if the path has a NUL.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        // Processes of other PID namespaces may have our number, and their metrics in our directory.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Of bounded length, as the path may have the longest there is.
        let name: String = name.chars().take(50).collect();
        let temporary = path.with_file_name(format!(".{name}.keepwatch-{}", process::id()));
        Ok(Self { path: c_path(path)?, temporary: c_path(&temporary)? })
    }

    /// Replaces the content, mode 0644. A symlink in its place is replaced, not followed. Returns
    /// the new file.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn replace(&self, content: &[u8]) -> Result<File, Errno> {
        let mut new = self.create()?;
        let rename = || renameat(AT_FDCWD, &*self.temporary, AT_FDCWD, &*self.path);
        let replaced = new.write_all(content).and_then(|()| Ok(rename()?));
        if replaced.is_err() {
            // Not to leave it behind.
            let _ = unlink(&self.temporary);
        }
        Ok(replaced.map(|()| new)?)
    }

    /// Whether there is a file, and it is not this one.
    pub fn is_another(&self, file: &File) -> bool {
        is_at(&self.path, file) == Some(false)
    }

    /// Removes it if it is still this one.
    pub fn remove(&self, file: &File) {
        if !self.is_another(file) {
            let _ = unlink(&self.path);
        }
    }

    fn create(&self) -> nix::Result<File> {
        // O_EXCL: whatever else is there under this name, be it a link or a FIFO, is not opened.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let create = || open(&*self.temporary, flags, Mode::from_bits_truncate(0o644));
        let created = create().or_else(|errno| match errno {
            // What could not be removed before, or was put there by somebody else.
            NixErrno::EEXIST => unlink(&self.temporary).and_then(|()| create()),
            _ => Err(errno),
        });
        created.map(File::from)
    }
}

/// Whether files can be created where one is to be. Changes nothing. A directory that is full is no error here.
pub(crate) fn examine(path: &Path) -> Result<(), Errno> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, path.parent().unwrap_or(path), access, AtFlags::AT_EACCESS)?)
}
