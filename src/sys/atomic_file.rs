//! Files that are whole or not there: the state file and the metrics file.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat, write};

use super::files::{c_path, identify};
use crate::errno::Errno;

/// A file that is replaced by renaming a complete one over it, so that a reader sees the old content or the new
/// one.
///
/// The directory is opened for each write, so that one that was replaced or mounted over is followed, and its file
/// system can be unmounted in between. The file is made and renamed within that same directory, wherever its path
/// leads meanwhile.
///
/// There is no fsync: after a crash of the machine the content is found out anew.
#[derive(Debug)]
pub struct AtomicFile {
    directory: CString,
    name: CString,
    /// The name of a new file until it is renamed. It has the pid, as several daemons may write into one directory.
    temporary: CString,
}

impl AtomicFile {
    /// Writes nothing yet, and looks at nothing.
    ///
    /// # Errors
    /// `EISDIR` if the path has no file's name, `EINVAL` if it has a NUL.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(NixErrno::EISDIR.into());
        };
        Ok(Self {
            directory: c_path(directory)?,
            name: c_path(name.as_ref())?,
            temporary: c_path(format!(".state.keepwatch-{}", process::id()).as_ref())?,
        })
    }

    /// Makes what `fill` writes the content, mode 0644. A symlink in its place is replaced, not followed. Returns
    /// the new file.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn replace(&self, fill: impl FnOnce(&File) -> nix::Result<()>) -> Result<File, Errno> {
        let directory = self.open_directory()?;
        let new = File::from(self.create(&directory)?);
        let rename = || renameat(&directory, &*self.temporary, &directory, &*self.name);
        let replaced = fill(&new).and_then(|()| rename());
        if replaced.is_err() {
            // Not to leave it behind.
            let _ = self.remove_temporary(&directory);
        }
        Ok(replaced.map(|()| new)?)
    }

    /// Whether there is a file, and it is not this one.
    pub fn is_another(&self, file: &File) -> bool {
        self.open_directory().is_ok_and(|directory| self.is_another_in(&directory, file))
    }

    /// Removes it if it is still this one.
    pub fn remove(&self, file: &File) {
        if let Ok(directory) = self.open_directory()
            && !self.is_another_in(&directory, file)
        {
            let _ = unlinkat(directory, &*self.name, UnlinkatFlags::NoRemoveDir);
        }
    }

    fn is_another_in(&self, directory: &OwnedFd, file: &File) -> bool {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let there = openat(directory, &*self.name, flags, Mode::empty());
        there.is_ok_and(|there| identify(&there.into()).ok() != identify(file).ok())
    }

    /// To make files in, whatever other rights there are.
    fn open_directory(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open(&*self.directory, flags, Mode::empty())
    }

    fn create(&self, directory: &OwnedFd) -> nix::Result<OwnedFd> {
        // O_EXCL: whatever else is there under this name, be it a link or a FIFO, is not opened.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        let create = || openat(directory, &*self.temporary, flags, mode);
        create().or_else(|errno| match errno {
            // No other daemon has the name: it is what could not be removed, or was put there by somebody else.
            NixErrno::EEXIST => {
                self.remove_temporary(directory)?;
                create()
            }
            _ => Err(errno),
        })
    }

    fn remove_temporary(&self, directory: &OwnedFd) -> nix::Result<()> {
        unlinkat(directory, &*self.temporary, UnlinkatFlags::NoRemoveDir)
    }
}

/// Whether files can be created where one is to be. Changes nothing.
///
/// # Errors
/// The errno if the directory may not be written. A full one is no error here.
pub fn examine(path: &Path) -> Result<(), Errno> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, path.parent().unwrap_or(path), access, AtFlags::AT_EACCESS)?)
}

/// Writes all of it.
///
/// # Errors
/// The errno of `write`, or `ENOSPC`.
pub fn write_all(file: &File, bytes: &[u8]) -> nix::Result<()> {
    // A file takes less than it is given only if the file system is full.
    if write(file, bytes)? == bytes.len() { Ok(()) } else { Err(NixErrno::ENOSPC) }
}
