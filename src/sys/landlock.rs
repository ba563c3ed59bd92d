//! Restricts file access to what is allowed by name, and denies TCP, signals and abstract Unix sockets of other
//! processes (`landlock(7)`).

#![expect(unsafe_code, reason = "libc has no functions for these system calls")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc::{self, c_long};
use nix::sys::stat::Mode;

use crate::errno::Errno;

/// Rights to a file, or to all files below a directory (`LANDLOCK_ACCESS_FS_*`,
/// `include/uapi/linux/landlock.h`). Rights that the kernel does not know are not restricted.
pub mod access {
    /// Executing a file.
    pub const EXECUTE: u64 = 1 << 0;
    /// Opening a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Opening a file for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// Listing a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Removing or renaming a file.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Making a regular file.
    pub const MAKE_REG: u64 = 1 << 8;
}

/// System call numbers. Apart from the first one of the architecture, they are the same everywhere.
const CREATE_RULESET: c_long = if cfg!(target_arch = "mips") { 4444 } else { 444 };
const ADD_RULE: c_long = CREATE_RULESET + 1;
const RESTRICT_SELF: c_long = CREATE_RULESET + 2;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`: what is denied unless a rule allows it. Older kernels know fewer fields, and
/// accept zeroes in the others.
#[repr(C)]
struct Handled {
    file_system: u64,
    tcp: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`
#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: RawFd,
}

/// Rules for what is allowed. All else that the kernel can restrict is denied.
#[derive(Debug)]
pub struct Ruleset {
    fd: OwnedFd,
    /// The rights to files that this kernel can restrict.
    handled: u64,
}

impl Ruleset {
    /// Makes a ruleset that allows nothing yet. Returns `None` if the kernel has no Landlock.
    ///
    /// # Errors
    /// Any other errno of `landlock_create_ruleset`.
    pub fn new() -> Result<Option<Self>, Errno> {
        // SAFETY: with this flag and no attributes, the kernel only returns its version of Landlock.
        let version =
            unsafe { libc::syscall(CREATE_RULESET, 0_usize, 0_usize, CREATE_RULESET_VERSION) };
        let version = match NixErrno::result(version) {
            Ok(version) => version,
            // Not built, not enabled at boot, or denied by a container's filter that is older than the call.
            Err(NixErrno::ENOSYS | NixErrno::EOPNOTSUPP | NixErrno::EPERM) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Each version adds bits to those before it.
        let known = |bits: &[(c_long, u32)]| {
            let count = bits.iter().filter(|(since, _)| *since <= version).map(|(_, count)| count);
            (1 << count.sum::<u32>()) - 1
        };
        let handled = Handled {
            // The first 13; moving between directories; truncating; ioctl on devices.
            file_system: known(&[(1, 13), (2, 1), (3, 1), (5, 1)]),
            // Binding and connecting.
            tcp: known(&[(4, 2)]),
            // Abstract Unix sockets, signals.
            scopes: known(&[(6, 2)]),
        };
        // SAFETY: the kernel reads as many bytes of `handled`.
        let fd = unsafe {
            libc::syscall(CREATE_RULESET, &raw const handled, size_of::<Handled>(), 0_u32)
        };
        let fd = RawFd::try_from(NixErrno::result(fd)?).map_err(|_| NixErrno::EBADF)?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Some(Self { fd, handled: handled.file_system }))
    }

    /// Allows [`access`] to a file, or to everything below a directory. The rule is for the file that is at
    /// `path` now, not for one that may replace it.
    ///
    /// # Errors
    /// The errno of opening it, or `EINVAL` if `access` has a right for directories and it is none.
    pub fn allow(&self, path: &Path, access: u64) -> Result<(), Errno> {
        self.allow_open(open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?, access)
    }

    /// As [`Self::allow`], for what is open.
    pub(super) fn allow_open(&self, file: impl AsFd, access: u64) -> Result<(), Errno> {
        let parent = file.as_fd().as_raw_fd();
        let rule = PathBeneath { access: access & self.handled, parent };
        // SAFETY: the kernel reads the rule.
        let added = unsafe {
            libc::syscall(ADD_RULE, self.fd.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
        };
        NixErrno::result(added)?;
        Ok(())
    }

    /// Enforces the rules for good, on this process and all that it will start. Needs `no_new_privs`.
    ///
    /// # Errors
    /// The errno of `landlock_restrict_self`.
    pub fn enforce(&self) -> Result<(), Errno> {
        // SAFETY: a system call without pointers.
        NixErrno::result(unsafe { libc::syscall(RESTRICT_SELF, self.fd.as_raw_fd(), 0_u32) })?;
        Ok(())
    }
}
