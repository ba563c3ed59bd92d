//! What kind of file is at a path, by one system call on every architecture.

#![expect(unsafe_code, reason = "statx")]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::stat::fstatat;

use crate::errno::Errno;

/// What tells a file from any other, and whose it is, which may change.
#[derive(Clone, Copy, Debug)]
pub struct FileId {
    /// The number of the device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// The owner.
    pub user: u32,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Looks at the file at a path, through symlinks.
///
/// # Errors
/// The errno of `statx`, or of `fstatat` where there is no `statx`.
pub fn identify(path: &CStr) -> Result<FileId, Errno> {
    identify_at(AT_FDCWD, path, AtFlags::empty())
}

/// The same for a path that begins at a directory, with `AT_SYMLINK_NOFOLLOW` for a symlink itself, or
/// with `AT_EMPTY_PATH` and no path for an open file.
///
/// # Errors
/// As [`identify`].
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
            let (device, inode) = (wide(file.st_dev), wide(file.st_ino));
            Ok(FileId { device, inode, user: file.st_uid })
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
            libc::STATX_INO | libc::STATX_UID,
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
        let file = fstatat(AT_FDCWD, c"/proc/self/ns/net", AtFlags::AT_NO_AUTOMOUNT).unwrap();
        let identity = identify(c"/proc/self/ns/net").unwrap();
        assert_eq!((identity.device, identity.inode), (file.st_dev, file.st_ino));
    }
}
