//! Files that are complete or absent: the state file and the metrics file.

use std::ffi::{CStr, CString};
use std::fs::{File, TryLockError};
use std::io::Write;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag, open, renameat};
use nix::sys::stat::Mode;

use super::files::{SAFELY, is_at, unlink};
use crate::errno::Errno;

/// A file that is replaced by renaming a complete one over it, so that a reader sees the old content or the new one.
/// There is no fsync, as a reboot determines the content anew.
#[derive(Debug)]
pub struct AtomicFile {
    pub(crate) path: CString,
    /// The path of the new file until it is renamed. No other process has this name.
    pub(crate) temporary: CString,
}

impl AtomicFile {
    /// Replaces the content, mode 0644. A symlink in its place is replaced, not followed. Returns the new file, opened with
    /// this `access` and locked, if its file system has locks.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content remains.
    pub fn replace(&self, content: &[u8], access: OFlag) -> Result<File, Errno> {
        self.replace_once(content, access).or_else(|errno| match NixErrno::from_raw(errno.0) {
            // A starting daemon has removed the new file before it was locked.
            NixErrno::ENOENT => self.replace_once(content, access),
            _ => Err(errno),
        })
    }

    fn replace_once(&self, content: &[u8], access: OFlag) -> Result<File, Errno> {
        let mut new = create(&self.temporary, access)?;
        // Without its lock, a starting daemon may take it for one that has ended, and the next write is a new file.
        let _ = new.try_lock();
        let rename = || renameat(AT_FDCWD, &*self.temporary, AT_FDCWD, &*self.path);
        let replaced = new.write_all(content).and_then(|()| Ok(rename()?));
        if replaced.is_err() {
            // The next write or start removes what is left.
            let _ = unlink(&self.temporary);
        }
        Ok(replaced.map(|()| new)?)
    }

    /// Returns whether another process has replaced the file by one that it has locked, or that this one may not read.
    pub fn is_taken(&self, own: &File) -> bool {
        let is_held = || match self.open() {
            Ok(file) => file.try_lock().is_err(),
            // No daemon holds what is no regular file.
            Err(errno) => errno == NixErrno::EACCES,
        };
        is_at(&self.path, own) == Ok(false) && is_held()
    }

    /// Removes the file of a process that has ended: one that is not locked. If it cannot be removed, the next write
    /// replaces it, or fails and reports that.
    pub fn discard(&self) {
        let is_locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if self.open().is_ok_and(|file| !is_locked(file)) {
            let _ = unlink(&self.path);
        }
    }

    /// Opens the file at the path to see whether it is locked. Only NFS asks for the right to write then.
    fn open(&self) -> nix::Result<File> {
        let open = |access| open(&*self.path, access | SAFELY, Mode::empty()).map(File::from);
        match open(OFlag::O_WRONLY) {
            Err(NixErrno::EACCES) => open(OFlag::O_RDONLY),
            opened => opened,
        }
    }

    /// Removes the file if it is still this one. What cannot be removed shows its age (`keepwatch --list`).
    pub fn remove(&self, file: &File) {
        if is_at(&self.path, file) == Ok(true) {
            let _ = unlink(&self.path);
        }
    }
}

/// Creates a file at a path that only this process uses, in place of any other. A link or a FIFO there is not opened.
pub(crate) fn create(path: &CStr, access: OFlag) -> nix::Result<File> {
    let flags = access | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let create = || open(path, flags, Mode::from_bits_truncate(0o644));
    let created = create().or_else(|errno| match errno {
        NixErrno::EEXIST => unlink(path).and_then(|()| create()),
        _ => Err(errno),
    });
    created.map(File::from)
}
