//! The identity of files, and flags and errors that several writers share.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{FileStat, fstat, lstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::errno::Errno;

/// Flags to open a file that others may have replaced by a symlink, a FIFO or a terminal.
pub(crate) const SAFELY: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

pub(crate) fn unlink(path: &CStr) -> nix::Result<()> {
    unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir)
}

pub(crate) fn is_same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Device, inode and time of the last change, as inode numbers are reused.
pub(crate) type FileId = (u64, u64, i64, i64);

/// Returns the identity of the file at the path. One that cannot be seen counts as missing: it is compared again later.
pub(crate) fn identity(path: &Path) -> Option<FileId> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Returns whether this open file is at the path. A symlink there is not followed. `ENOENT`: no file is there.
pub(crate) fn is_at(path: &CStr, file: &File) -> nix::Result<bool> {
    let there = lstat(path)?;
    Ok(is_same(&fstat(file)?, &there))
}

/// Returns whether a write failed as the disk, or the user's part of it, is full.
pub(crate) fn is_full(errno: Errno) -> bool {
    [NixErrno::ENOSPC, NixErrno::EDQUOT].map(Errno::from).contains(&errno)
}
