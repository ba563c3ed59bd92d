//! Drops privileges: groups, user, capabilities, resource limits.

#![expect(unsafe_code, reason = "no library sets capabilities")]

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, getgroups, setgroups, setresgid, setresuid};

use crate::errno::Errno;

/// The credentials to run with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunAs {
    /// `None`: unchanged.
    pub user: Option<Uid>,
    /// `None`: unchanged.
    pub group: Option<Gid>,
}

/// Drops supplementary groups, group, user and all capabilities for good, and sets `no_new_privs`. Makes the
/// process undumpable, so that others of the same user cannot trace it.
///
/// Root keeps `CAP_DAC_OVERRIDE`, without which it cannot write to directories and sockets of others, as an
/// agent's usually are. The error is what failed, in one line.
pub(crate) fn drop(identity: RunAs) -> Result<(), String> {
    if geteuid().is_root() {
        clear_groups(identity).map_err(in_step("clearing groups"))?;
        drop_bounding_set(0).map_err(in_step("dropping capabilities"))?;
    }
    become_user(identity).map_err(in_step("becoming the user and group"))?;
    let kept = if geteuid().is_root() { 1 << CAP_DAC_OVERRIDE } else { 0 };
    set_capabilities(kept, 0).map_err(in_step("dropping capabilities"))?;
    prctl::set_no_new_privs().map_err(in_step("setting no_new_privs"))?;
    prctl::set_dumpable(false).map_err(in_step("becoming undumpable"))
}

fn in_step(step: &str) -> impl FnOnce(NixErrno) -> String {
    move |errno| format!("{step}: {}", Errno::from(errno))
}

fn become_user(RunAs { user, group }: RunAs) -> nix::Result<()> {
    group.map_or(Ok(()), |group| setresgid(group, group, group))?;
    user.map_or(Ok(()), |user| setresuid(user, user, user))
}

/// Limits root to what it takes to run a client of conntrackd: programs that it executes have `CAP_DAC_OVERRIDE`
/// alone, and it can still become `identity` and root again.
pub(super) fn limit_to_client(identity: RunAs) -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    clear_groups(identity)?;
    drop_bounding_set(1 << CAP_DAC_OVERRIDE)?;
    set_capabilities(1 << CAP_DAC_OVERRIDE | 1 << CAP_SETGID | 1 << CAP_SETUID, 0)
}

/// Becomes whom the hook is run as, for good. What is kept from root is the right to kill what the hook has
/// started as somebody else, as by `sudo`; no program that is executed has it.
pub(super) fn become_hook_user(identity: RunAs, groups: &[Gid]) -> nix::Result<()> {
    let was_root = geteuid().is_root();
    if was_root && identity != RunAs::default() {
        setgroups(groups)?;
        prctl::set_keepcaps(true)?;
    }
    become_user(identity)?;
    if was_root && !geteuid().is_root() {
        return set_capabilities(1 << CAP_KILL, 0).or_else(|_| set_capabilities(0, 0));
    }
    Ok(())
}

/// Lets this process start no other (the kernel exempts root).
pub(crate) fn forbid_processes() -> Result<(), Errno> {
    Ok(setrlimit(Resource::RLIMIT_NPROC, 0, 0)?)
}

// include/uapi/linux/capability.h
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Drops supplementary groups. In a user namespace of an ordinary user that is denied, and not needed.
fn clear_groups(identity: RunAs) -> nix::Result<()> {
    match setgroups(&[]) {
        Err(NixErrno::EPERM) if identity == RunAs::default() || getgroups()?.is_empty() => Ok(()),
        result => result,
    }
}

/// Drops all capabilities but these from the bounding set, so that executing a program cannot regain them.
fn drop_bounding_set(kept: u64) -> nix::Result<()> {
    for capability in (0..64).filter(|capability| kept & 1 << capability == 0) {
        // SAFETY: a system call without pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match NixErrno::result(dropped) {
            Ok(_) => {}
            // Beyond the last capability of this kernel.
            Err(NixErrno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Sets the permitted and effective capabilities, and the inheritable ones. Both masks are of the first 32
/// capabilities. What is not inheritable leaves the ambient set too.
fn set_capabilities(kept: u32, inheritable: u32) -> nix::Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    // The version, and the process: this one.
    let header = [LINUX_CAPABILITY_VERSION_3, 0];
    let low = Data { effective: kept, permitted: kept, inheritable };
    let data = [low, Data::default()];
    // SAFETY: the kernel reads a header and, in this version, two elements of data.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    NixErrno::result(set).map(|_| ())
}
