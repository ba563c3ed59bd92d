//! Locks used pages in memory.

use std::fs;

use nix::errno::Errno as NixErrno;
use nix::libc::{MCL_ONFAULT, RLIM_INFINITY, rlim_t};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};

use crate::errno::Errno;

/// How far the stack may still grow, in bytes. Beyond the limit of locked memory, the kernel would kill the
/// process.
const STACK_ROOM: rlim_t = 1 << 20;

/// Has [`lock`] succeed whatever the size, while this process may still say so. The memory of the process
/// is bounded by what it has at its start.
pub fn allow_lock() {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// Keeps each page that has been or will be used from being reclaimed, so that no transition has to wait for
/// a disk. Loads none (`MCL_ONFAULT`, Linux 4.4).
/// `ENOMEM` where `RLIMIT_MEMLOCK` is too low.
pub fn lock() -> Result<(), Errno> {
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    let sizes = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(u32::MAX);
    let page = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|size| rlim_t::try_from(size).ok());
    let size = rlim_t::from(pages).saturating_mul(page.unwrap_or(4096));
    // Nothing is more than no limit, which is the largest number.
    if size.saturating_add(STACK_ROOM) > limit {
        return Err(NixErrno::ENOMEM.into());
    }
    Ok(mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::from_bits_retain(MCL_ONFAULT))?)
}
