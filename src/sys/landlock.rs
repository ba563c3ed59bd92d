//! Giving up the file system but for what is named, and TCP, signals and abstract Unix sockets of others
//! altogether (`landlock(7)`).

#![expect(unsafe_code, reason = "system calls that libc has no functions for")]

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc::{self, c_long};
use nix::sys::stat::Mode;

use super::files::c_path;
use crate::errno::Errno;

/// What may be done with a file, or with all that is below a directory (`LANDLOCK_ACCESS_FS_*`,
/// `include/uapi/linux/landlock.h`). A right that the kernel does not know is not taken away either.
pub mod access {
    /// Running a file.
    pub const EXECUTE: u64 = 1;
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

/// The same on every architecture.
const CREATE_RULESET: c_long = NUMBERS_FROM + 444;
const ADD_RULE: c_long = NUMBERS_FROM + 445;
const RESTRICT_SELF: c_long = NUMBERS_FROM + 446;
/// Where the numbers of system calls begin.
const NUMBERS_FROM: c_long = if cfg!(target_arch = "mips") { 4000 } else { 0 };

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`: what is forbidden where no rule allows it. An older kernel knows less
/// of it, and takes zeroes for the rest.
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

/// Everything is forbidden that is not allowed.
#[derive(Debug)]
pub struct Ruleset {
    fd: OwnedFd,
    /// The rights to files that this kernel can take away.
    handled: u64,
}

impl Ruleset {
    /// Begins with nothing allowed. None if the kernel has no Landlock.
    ///
    /// # Errors
    /// The errno of the kernel that has it.
    pub fn new() -> Result<Option<Self>, Errno> {
        // SAFETY: without a ruleset, the kernel is asked for its version of all this alone.
        let version =
            unsafe { libc::syscall(CREATE_RULESET, 0_usize, 0_usize, CREATE_RULESET_VERSION) };
        let version = match NixErrno::result(version) {
            Ok(version) => version,
            // Not built, or not among the security modules that were chosen at boot; or a container's filter is
            // older than the call.
            Err(NixErrno::ENOSYS | NixErrno::EOPNOTSUPP | NixErrno::EPERM) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Each version has the bits of those before it.
        let known = |bits: &[(c_long, u32)]| {
            let count = bits.iter().filter(|(since, _)| *since <= version).map(|(_, count)| count);
            (1 << count.sum::<u32>()) - 1
        };
        let handled = Handled {
            // 13; between directories; truncating; ioctl of devices.
            file_system: known(&[(1, 13), (2, 1), (3, 1), (5, 1)]),
            // Binding and connecting.
            tcp: known(&[(4, 2)]),
            // Abstract Unix sockets, signals.
            scopes: known(&[(6, 2)]),
        };
        // SAFETY: the kernel reads so many bytes of it.
        let fd = unsafe {
            libc::syscall(CREATE_RULESET, &raw const handled, size_of::<Handled>(), 0_u32)
        };
        let fd = RawFd::try_from(NixErrno::result(fd)?).map_err(|_| NixErrno::EBADF)?;
        // SAFETY: it is new, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Some(Self { fd, handled: handled.file_system }))
    }

    /// Allows what [`access`] says with a file, or with everything below a directory as long as that is
    /// where it is: another of the same name is not meant.
    ///
    /// # Errors
    /// The errno of looking at it, or `EINVAL` for a right to a file that only a directory can have.
    pub fn allow(&self, path: &Path, access: u64) -> Result<(), Errno> {
        let parent =
            open(c_path(path)?.as_c_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let rule = PathBeneath { access: access & self.handled, parent: parent.as_raw_fd() };
        // SAFETY: the kernel reads the rule.
        let added = unsafe {
            libc::syscall(ADD_RULE, self.fd.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
        };
        NixErrno::result(added)?;
        Ok(())
    }

    /// Forbids the rest for good, to this process and to all that it will start. Wants `no_new_privs`.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn enforce(self) -> Result<(), Errno> {
        // SAFETY: a system call without pointers.
        let restricted = unsafe { libc::syscall(RESTRICT_SELF, self.fd.as_raw_fd(), 0_u32) };
        NixErrno::result(restricted)?;
        Ok(())
    }
}
