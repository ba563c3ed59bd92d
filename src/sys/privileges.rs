//! Giving up what is not needed any more: groups, user, capabilities.

#![expect(unsafe_code, reason = "no library sets capabilities")]

use core::ptr::null_mut;
use std::os::fd::AsRawFd;

use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int, c_void, rlim_t};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, dup, geteuid, setfsgid, setfsuid};

use crate::errno::Errno;

/// Whom to be from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunAs {
    /// None: stay who one is.
    pub user: Option<Uid>,
    /// None: stay in the group one is in.
    pub group: Option<Gid>,
}

/// Drops to `identity`: supplementary groups, group, user, all capabilities for good, and the
/// prospect of new ones. Nor can other processes of the user look into this one any more.
///
/// Who stays root keeps `CAP_DAC_OVERRIDE` alone, without which root cannot write to directories and
/// sockets of others, as those of an agent usually are.
///
/// # Errors
/// What failed, in one line.
pub fn drop(identity: RunAs) -> Result<(), String> {
    let mut step = String::new();
    give_up(identity, &mut step).map_err(|errno| format!("{step}: {}", Errno::from(errno)))
}

/// `step` says what was done last.
fn give_up(identity: RunAs, step: &mut String) -> nix::Result<()> {
    if geteuid().is_root() {
        *step = "clearing groups".into();
        clear_groups(identity)?;
        *step = "dropping capabilities".into();
        drop_bounding_set(0)?;
    }
    if let Some(group) = identity.group {
        *step = format!("becoming group {group}");
        become_group(group)?;
    }
    if let Some(user) = identity.user {
        *step = format!("becoming user {user}");
        become_user(user)?;
    }
    *step = "dropping capabilities".into();
    let kept = if geteuid().is_root() { 1 << CAP_DAC_OVERRIDE } else { 0 };
    set_capabilities(kept, 0)?;
    *step = "setting no_new_privs".into();
    prctl::set_no_new_privs()?;
    *step = "becoming undumpable".into();
    prctl::set_dumpable(false)
}

// libc's own functions for these have all threads of a process do it, of which there is but one.
#[cfg(not(target_arch = "arm"))]
use libc::{SYS_setgroups, SYS_setresgid, SYS_setresuid};
// With numbers of 32 bits.
#[cfg(target_arch = "arm")]
use libc::{
    SYS_setgroups32 as SYS_setgroups, SYS_setresgid32 as SYS_setresgid,
    SYS_setresuid32 as SYS_setresuid,
};

fn become_user(user: Uid) -> nix::Result<()> {
    let user = user.as_raw();
    // SAFETY: a system call without pointers.
    NixErrno::result(unsafe { libc::syscall(SYS_setresuid, user, user, user) }).map(|_| ())
}

fn become_group(group: Gid) -> nix::Result<()> {
    let group = group.as_raw();
    // SAFETY: a system call without pointers.
    NixErrno::result(unsafe { libc::syscall(SYS_setresgid, group, group, group) }).map(|_| ())
}

/// Sets limits of this process, soft and hard ones.
pub(super) fn limit_to(limits: &[(Resource, rlim_t)]) -> nix::Result<()> {
    for (resource, limit) in limits {
        let limit = libc::rlimit { rlim_cur: *limit, rlim_max: *limit };
        // SAFETY: the kernel reads the limit.
        NixErrno::result(unsafe { libc::prlimit(0, *resource, &raw const limit, null_mut()) })?;
    }
    Ok(())
}

#[cfg(target_env = "gnu")]
pub(super) type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub(super) type Resource = c_int;

/// Keeps what it takes to run conntrackd's commands, if this is root: to become a user, in a place made for
/// the purpose, and to kill his processes. Where there is less, it is kept as it is.
pub(super) fn keep_for_commands() {
    const KEPT: [u32; 8] = [
        CAP_DAC_OVERRIDE,
        CAP_KILL,
        CAP_SETGID,
        CAP_SETUID,
        CAP_SETPCAP,
        CAP_NET_ADMIN,
        CAP_SYS_CHROOT,
        CAP_SYS_ADMIN,
    ];
    if geteuid().is_root() {
        let _ = set_capabilities(KEPT.iter().fold(0, |kept, capability| kept | 1 << capability), 0);
    }
}

/// Limits root to what a client of conntrackd may need: its socket, and in old releases that there be
/// `CAP_NET_ADMIN`.
pub(super) fn limit_root() -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    drop_bounding_set(1 << CAP_DAC_OVERRIDE | 1 << CAP_NET_ADMIN)
}

/// Becomes a user for good, in whose place a program then has `CAP_DAC_OVERRIDE` and no other capability.
pub(super) fn become_client(user: Uid, group: Gid) -> nix::Result<()> {
    let kept: u32 = 1 << CAP_DAC_OVERRIDE;
    drop_bounding_set(kept.into())?;
    prctl::set_keepcaps(true)?;
    become_group(group)?;
    become_user(user)?;
    set_capabilities(kept, kept)?;
    let (raise, capability) = (libc::PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE);
    // SAFETY: a system call without pointers.
    NixErrno::result(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, capability, 0, 0) })
        .map(|_| ())
}

/// Becomes whom the hook is run as, for good. What is kept from root is the right to kill what the hook has
/// started as somebody else, as by `sudo`; no program that is executed has it.
pub(super) fn become_hook_user(identity: RunAs, groups: &[u32]) -> nix::Result<()> {
    let was_root = geteuid().is_root();
    if was_root && identity != RunAs::default() {
        // SAFETY: the kernel reads so many groups.
        let set = unsafe { libc::syscall(SYS_setgroups, groups.len(), groups.as_ptr()) };
        NixErrno::result(set)?;
        prctl::set_keepcaps(true)?;
    }
    identity.group.map_or(Ok(()), become_group)?;
    identity.user.map_or(Ok(()), become_user)?;
    if was_root && !geteuid().is_root() {
        return set_capabilities(1 << CAP_KILL, 0).or_else(|_| set_capabilities(0, 0));
    }
    Ok(())
}

/// Does something with the rights to files that `identity` will have, and gives up the supplementary groups
/// for good; as oneself if that is nobody else (`setfsuid(2)`).
///
/// # Errors
/// `EPERM` if these rights cannot be had, or root's would remain (`SECBIT_NO_SETUID_FIXUP`).
pub fn with_file_rights_of(identity: RunAs, act: &mut dyn FnMut()) -> Result<(), NixErrno> {
    let Some(user) = identity.user.filter(|user| geteuid().is_root() && !user.is_root()) else {
        act();
        return Ok(());
    };
    clear_groups(identity)?;
    let old_group = identity.group.map(setfsgid);
    let old_user = setfsuid(user);
    // SAFETY: a system call without pointers.
    let keeps_rights = unsafe { libc::prctl(libc::PR_GET_SECUREBITS) } & SECBIT_NO_SETUID_FIXUP;
    // What they return is what was so before, be it changed or not; -1 changes nothing.
    let changed = keeps_rights == 0
        && setfsuid(Uid::from_raw(u32::MAX)) == user
        && identity.group.is_none_or(|group| setfsgid(Gid::from_raw(u32::MAX)) == group);
    if changed {
        act();
    }
    setfsuid(old_user);
    old_group.map(setfsgid);
    if changed { Ok(()) } else { Err(NixErrno::EPERM) }
}

/// Descriptors that are opened now and then: the connection to the agent, the last metrics file, and beside them a
/// new file or what it is in or the log, with some to spare.
const MORE_DESCRIPTORS: u32 = 5;

/// Limits it to what it has, once all is open: no other process (but for root, whom the kernel lets
/// exceed this), a few descriptors more, no core dump.
///
/// # Errors
/// The errno of `prlimit`.
pub fn limit() -> Result<(), Errno> {
    // The lowest number that is free.
    let free = dup(std::io::stderr())?.as_raw_fd();
    let descriptors = u32::try_from(free).unwrap_or_default() + MORE_DESCRIPTORS;
    Ok(limit_to(&[
        (libc::RLIMIT_NPROC, 0),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NOFILE, descriptors.into()),
    ])?)
}

/// From `include/uapi/linux/capability.h`, as are the next.
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SETPCAP: u32 = 8;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_CHROOT: u32 = 18;
const CAP_SYS_ADMIN: u32 = 21;
/// From `include/uapi/linux/securebits.h`.
const SECBIT_NO_SETUID_FIXUP: c_int = 1 << 2;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// In a user namespace of an ordinary user groups cannot be changed, and need not be.
fn clear_groups(identity: RunAs) -> nix::Result<()> {
    // SAFETY: there is nothing to be read.
    let cleared = unsafe { libc::syscall(SYS_setgroups, 0, null_mut::<c_void>()) };
    match NixErrno::result(cleared).map(|_| ()) {
        Err(NixErrno::EPERM) if identity == RunAs::default() || has_no_groups() => Ok(()),
        result => result,
    }
}

fn has_no_groups() -> bool {
    // SAFETY: there is no room, and nothing is written.
    unsafe { libc::getgroups(0, null_mut()) == 0 }
}

/// What is not in the bounding set no program that is executed can get. These remain.
fn drop_bounding_set(kept: u64) -> nix::Result<()> {
    for capability in (0..64).filter(|capability| kept & 1 << capability == 0) {
        // SAFETY: a system call without pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match NixErrno::result(dropped) {
            Ok(_) => {}
            // Beyond the last that the kernel knows.
            Err(NixErrno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes these the permitted and effective capabilities, of the first 32, and those the inheritable ones;
/// what is not among these is not in the ambient set either.
fn set_capabilities(kept: u32, inheritable: u32) -> nix::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: LINUX_CAPABILITY_VERSION_3, pid: 0 };
    let low = Data { effective: kept, permitted: kept, inheritable };
    let data = [low, Data::default()];
    // SAFETY: the kernel reads a header and, in this version, two elements of data.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    NixErrno::result(set).map(|_| ())
}
