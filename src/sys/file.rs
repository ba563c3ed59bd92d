//! What kind of file is at a path, by one system call on every architecture.

#![expect(unsafe_code, reason = "statx")]

use core::ffi::CStr;
use core::mem::MaybeUninit;

use nix::errno::Errno as Known;
use nix::libc;

use crate::errno::Errno;

/// What tells a file from any other, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Number of the inode.
    pub inode: u64,
    /// The owner.
    pub user: u32,
}

/// Looks at the file at a path, through symlinks.
///
/// # Errors
/// The errno of `statx`; `ENOSYS` before Linux 4.11.
pub fn identify(path: &CStr) -> Result<Identity, Errno> {
    let mut file = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the kernel reads the path and writes a `struct statx`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            libc::AT_FDCWD,
            path.as_ptr(),
            0,
            libc::STATX_INO | libc::STATX_UID,
            file.as_mut_ptr(),
        )
    };
    Known::result(result)?;
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote.
    let file = unsafe { file.assume_init() };
    Ok(Identity {
        device: (file.stx_dev_major, file.stx_dev_minor),
        inode: file.stx_ino,
        user: file.stx_uid,
    })
}
