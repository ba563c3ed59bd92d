//! Paths as C strings, and which file is where.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FileStat, fstat, lstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A path as a C string, which can be used without allocating. `EINVAL` if it contains a NUL.
pub(super) fn c_path(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NixErrno::EINVAL)
}

pub(super) fn unlink(path: &CStr) -> nix::Result<()> {
    unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir)
}

pub(super) fn is_same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether this open file is at the path, not followed if it is a symlink. `None`: nothing is there.
pub(super) fn is_at(path: &CStr, file: &File) -> Option<bool> {
    let there = lstat(path).ok()?;
    Some(fstat(file).is_ok_and(|file| is_same(&file, &there)))
}
