//! Identity, owner and mode of a file.

#![expect(
    unsafe_code,
    reason = "nix has no fstatat64, and fstatat fails for large inodes on 32-bit glibc"
)]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;

use super::constants::NO_PATH;
use super::files::c_path;
use crate::errno::Errno;

/// A file: two are equal if device and inode are; the rest may change.
#[derive(Clone, Copy, Debug)]
pub struct FileId {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// The owner.
    pub user: u32,
    /// The owner's group.
    pub group: u32,
    /// Type and permission bits (`inode(7)`).
    pub mode: u32,
    /// It has several hard links.
    pub has_other_names: bool,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl FileId {
    /// The type, such as `S_IFREG`.
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
}

/// Looks at the file at a path, through symlinks.
///
/// # Errors
/// The errno of `fstatat`.
pub fn identify(path: &CStr) -> Result<FileId, Errno> {
    identify_at(AT_FDCWD, path, AtFlags::empty())
}

/// As [`identify`].
///
/// # Errors
/// As [`identify`], and `EINVAL` for a path with a NUL in it.
pub fn identify_path(path: &Path) -> Result<FileId, Errno> {
    identify(&c_path(path)?)
}

/// Looks at the file at a path, or at the symlink if it is one.
///
/// # Errors
/// As [`identify`].
pub fn identify_link(path: &CStr) -> Result<FileId, Errno> {
    identify_at(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// Looks at an open file.
///
/// # Errors
/// As [`identify`].
pub fn identify_open(file: &impl AsFd) -> Result<FileId, Errno> {
    identify_at(file.as_fd(), NO_PATH, AtFlags::AT_EMPTY_PATH)
}

/// Looks at a path relative to a directory.
///
/// # Errors
/// As [`identify`].
#[inline(never)]
pub fn identify_at(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: AtFlags,
) -> Result<FileId, Errno> {
    // With AT_NO_AUTOMOUNT neither glibc nor musl makes another call than those in the seccomp filter.
    let (directory, flags) = (directory.as_raw_fd(), (flags | AtFlags::AT_NO_AUTOMOUNT).bits());
    let mut file = MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the C library reads the path and writes a `struct stat64`.
    let result = unsafe { libc::fstatat64(directory, path.as_ptr(), file.as_mut_ptr(), flags) };
    NixErrno::result(result)?;
    // SAFETY: all zeroes are a valid value, and so is what was written.
    let file = unsafe { file.assume_init() };
    Ok(FileId {
        device: wide(file.st_dev),
        inode: wide(file.st_ino),
        user: file.st_uid,
        group: file.st_gid,
        mode: file.st_mode,
        has_other_names: file.st_nlink > 1,
    })
}

/// Widens a number that has another width on each architecture.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn sees_what_std_sees() {
        for path in [c"/proc/self/ns/net", c"/proc", c"/proc/self"] {
            let expected = std::fs::symlink_metadata(path.to_str().unwrap()).unwrap();
            let FileId { device, inode, user, group, mode, has_other_names } =
                identify_link(path).unwrap();
            assert_eq!((device, inode), (expected.dev(), expected.ino()));
            assert_eq!((user, group, mode), (expected.uid(), expected.gid(), expected.mode()));
            assert_eq!(has_other_names, expected.nlink() > 1);
        }
    }
}
