//! What is known of a file, by one system call on every architecture.

#![expect(unsafe_code, reason = "statx")]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::stat::fstatat;

use super::constants::NO_PATH;
use crate::errno::Errno;

/// What tells a file from any other, and what may change of it.
#[derive(Clone, Copy, Debug)]
pub struct FileId {
    /// The number of the device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// The owner.
    pub user: u32,
    /// The owner's group.
    pub group: u32,
    /// Type and permissions (`inode(7)`).
    pub mode: u32,
    /// The file has more than one name.
    pub has_other_names: bool,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl FileId {
    /// The type, as `S_IFREG`.
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
}

/// Looks at the file at a path, through symlinks.
///
/// # Errors
/// The errno of `statx`, or of `fstatat` where there is no `statx`.
pub fn identify(path: &CStr) -> Result<FileId, Errno> {
    identify_at(AT_FDCWD, path, AtFlags::empty())
}

/// Looks at what is at a path itself, be it a symlink.
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

/// The same for a path that begins at a directory.
///
/// # Errors
/// As [`identify`].
#[inline(never)]
pub fn identify_at(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: AtFlags,
) -> Result<FileId, Errno> {
    // With this flag, musl has no other call in its place.
    let flags = flags | AtFlags::AT_NO_AUTOMOUNT;
    match by_statx(directory, path, flags) {
        // Before Linux 4.11; and sandboxes that are older than the call.
        Err(NixErrno::ENOSYS | NixErrno::EPERM) => {
            let file = fstatat(directory, path, flags)?;
            Ok(FileId {
                device: wide(file.st_dev),
                inode: wide(file.st_ino),
                user: file.st_uid,
                group: file.st_gid,
                mode: file.st_mode,
                has_other_names: file.st_nlink > 1,
            })
        }
        result => Ok(result?),
    }
}

fn by_statx(directory: BorrowedFd<'_>, path: &CStr, flags: AtFlags) -> nix::Result<FileId> {
    let mut file = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the kernel reads the path and writes a `struct statx`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            directory.as_raw_fd(),
            path.as_ptr(),
            flags.bits(),
            libc::STATX_BASIC_STATS,
            file.as_mut_ptr(),
        )
    };
    NixErrno::result(result)?;
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote.
    let file = unsafe { file.assume_init() };
    Ok(FileId {
        device: libc::makedev(file.stx_dev_major, file.stx_dev_minor),
        inode: file.stx_ino,
        user: file.stx_uid,
        group: file.stx_gid,
        mode: file.stx_mode.into(),
        has_other_names: file.stx_nlink > 1,
    })
}

/// These have another width on every architecture.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_calls_tell_the_same() {
        for path in [c"/proc/self/ns/net", c"/proc", c"/proc/self"] {
            let flags = AtFlags::AT_NO_AUTOMOUNT | AtFlags::AT_SYMLINK_NOFOLLOW;
            let file = fstatat(AT_FDCWD, path, flags).unwrap();
            let FileId { device, inode, user, group, mode, has_other_names } =
                identify_link(path).unwrap();
            assert_eq!((device, inode), (file.st_dev, file.st_ino));
            assert_eq!((user, group, mode), (file.st_uid, file.st_gid, file.st_mode));
            assert_eq!(has_other_names, file.st_nlink > 1);
        }
    }
}
