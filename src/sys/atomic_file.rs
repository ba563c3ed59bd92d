//! Files that are complete or absent: the state file and the metrics file.

use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::process;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag, open, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::files::{SAFELY, c_path, is_at, unlink};
use crate::errno::Errno;
use crate::monitor::FoundStateFile;

/// A file that is replaced by renaming a complete one over it, so that a reader sees the old content or the new one.
/// There is no fsync, as a reboot determines the content anew.
#[derive(Debug)]
pub struct AtomicFile {
    path: CString,
    /// The path of the new file until it is renamed. It ends in the pid, as several daemons may share a directory.
    temporary: CString,
}

impl AtomicFile {
    /// Prepares the paths, and accesses no file.
    ///
    /// # Errors
    /// `EINVAL` if the path has a NUL.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        // The file's name tells processes of different PID namespaces with the same pid apart. The longest name must fit.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().take(50).collect();
        let temporary = path.with_file_name(format!(".{name}.keepwatch-{}", process::id()));
        Ok(Self { path: c_path(path)?, temporary: c_path(&temporary)? })
    }

    /// Checks that the file can be replaced ([`examine`]). A full disk is no error here.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let full = [NixErrno::ENOSPC, NixErrno::EDQUOT].map(Errno::from);
        examine(path).or_else(|errno| if full.contains(&errno) { Ok(()) } else { Err(errno) })?;
        Self::new(path)
    }

    /// Replaces the content, mode 0644. A symlink in its place is replaced, not followed. Returns the new file, locked if
    /// `lock` is set and its file system has locks.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content remains.
    pub fn replace(&self, content: &[u8], lock: bool) -> Result<File, Errno> {
        let mut new = self.create()?;
        if lock {
            let _ = new.try_lock();
        }
        let rename = || renameat(AT_FDCWD, &*self.temporary, AT_FDCWD, &*self.path);
        let replaced = new.write_all(content).and_then(|()| Ok(rename()?));
        if replaced.is_err() {
            let _ = unlink(&self.temporary);
        }
        Ok(replaced.map(|()| new)?)
    }

    /// Returns whether another process has replaced the file by one that it has locked, or that cannot be opened.
    pub fn is_taken(&self, own: &File) -> bool {
        let flags = OFlag::O_WRONLY | SAFELY;
        let opened = || open(&*self.path, flags, Mode::empty()).map(File::from);
        let is_held = || opened().map_or(true, |file| file.try_lock().is_err());
        is_at(&self.path, own) == Ok(false) && is_held()
    }

    /// Returns what is at the path of the file written earlier.
    pub fn find(&self, written: &File) -> FoundStateFile {
        match is_at(&self.path, written) {
            Ok(false) => FoundStateFile::Foreign,
            Err(NixErrno::ENOENT) => FoundStateFile::Changed,
            _ => FoundStateFile::Intact,
        }
    }

    /// Removes an ended process's file: one that is not locked.
    pub fn discard(&self) {
        let file = open(&*self.path, OFlag::O_WRONLY | SAFELY, Mode::empty()).map(File::from);
        let is_locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if file.is_ok_and(|file| !is_locked(file)) {
            let _ = unlink(&self.path);
        }
    }

    /// Removes the file if it is still this one.
    pub fn remove(&self, file: &File) {
        if is_at(&self.path, file) == Ok(true) {
            let _ = unlink(&self.path);
        }
    }

    fn create(&self) -> nix::Result<File> {
        // O_EXCL: a link or a FIFO of this name is not opened.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let create = || open(&*self.temporary, flags, Mode::from_bits_truncate(0o644));
        let created = create().or_else(|errno| match errno {
            // A leftover, or another user's.
            NixErrno::EEXIST => unlink(&self.temporary).and_then(|()| create()),
            _ => Err(errno),
        });
        created.map(File::from)
    }
}

/// Checks that a file can be replaced, by writing and removing a temporary one. The file itself stays.
pub(crate) fn examine(path: &Path) -> Result<(), Errno> {
    let file = AtomicFile::new(path)?;
    let mut new = file.create()?;
    let written = new.write_all(b"trial");
    unlink(&file.temporary)?;
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Err(NixErrno::EISDIR.into());
    }
    // On a file, `rmdir` checks the right to remove it (`may_delete` in fs/namei.c), then fails with ENOTDIR.
    match unlinkat(AT_FDCWD, &*file.path, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(NixErrno::ENOENT | NixErrno::ENOTDIR) => Ok(written?),
        Err(errno) => Err(errno.into()),
    }
}
