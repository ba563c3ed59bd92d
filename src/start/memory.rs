//! Locks used pages in memory.

use nix::libc::{MCL_ONFAULT, RLIM_INFINITY, rlim_t};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::errno::Errno;

/// Room for the stack to grow, in bytes. Beyond the limit of locked memory, the kernel would kill the process.
const STACK_ROOM: rlim_t = 1 << 20;

/// Removes the limit of locked memory, if this process has the right to.
pub fn allow_lock() {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// Locks each page once it is used (`MCL_ONFAULT`, Linux 4.4), so that no transition waits for a disk. `ENOMEM` or `EPERM`
/// where `RLIMIT_MEMLOCK` is too low.
pub fn lock() -> Result<(), Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    // mlockall compares the limit with the present size.
    setrlimit(Resource::RLIMIT_MEMLOCK, soft.saturating_sub(STACK_ROOM), hard)?;
    let flags = MlockAllFlags::MCL_CURRENT | MlockAllFlags::from_bits_retain(MCL_ONFAULT);
    let locked = mlockall(flags);
    setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard)?;
    Ok(locked?)
}
