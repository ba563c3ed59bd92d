//! Giving up what is not needed any more: groups, user, capabilities.

#![expect(unsafe_code, reason = "no library sets capabilities")]

use nix::errno::Errno as Known;
use nix::libc;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, geteuid, getgroups, setgroups, setresgid, setresuid};

/// Whom to be from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
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
pub fn drop(identity: Identity) -> Result<(), String> {
    let step = |what: &str, result: nix::Result<()>| {
        result.map_err(|errno| format!("{what}: {}", crate::errno::Errno::from(errno)))
    };
    if geteuid().is_root() {
        step("clearing groups", clear_groups(identity))?;
        step("dropping capabilities", drop_bounding_set())?;
    }
    if let Some(group) = identity.group {
        step(&format!("becoming group {group}"), setresgid(group, group, group))?;
    }
    if let Some(user) = identity.user {
        step(&format!("becoming user {user}"), setresuid(user, user, user))?;
    }
    let kept = if geteuid().is_root() { 1 << CAP_DAC_OVERRIDE } else { 0 };
    step("dropping capabilities", set_capabilities(kept))?;
    step("setting no_new_privs", prctl::set_no_new_privs())?;
    step("becoming undumpable", prctl::set_dumpable(false))
}

/// From `include/uapi/linux/capability.h`, as are the next.
const CAP_DAC_OVERRIDE: u32 = 1;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// In a user namespace of an ordinary user groups cannot be changed, and need not be.
fn clear_groups(identity: Identity) -> nix::Result<()> {
    match setgroups(&[]) {
        Err(Known::EPERM) if identity == Identity::default() || getgroups()?.is_empty() => Ok(()),
        result => result,
    }
}

/// What is not in the bounding set no program that is executed can get.
fn drop_bounding_set() -> nix::Result<()> {
    for capability in 0..64 {
        // SAFETY: a system call without pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Known::result(dropped) {
            Ok(_) => {}
            // Beyond the last that the kernel knows.
            Err(Known::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes these the permitted and effective capabilities, of the first 32, and empties the
/// inheritable and thereby the ambient set.
fn set_capabilities(kept: u32) -> nix::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: LINUX_CAPABILITY_VERSION_3, pid: 0 };
    let low = Data { effective: kept, permitted: kept, inheritable: 0 };
    let data = [low, Data::default()];
    // SAFETY: the kernel reads a header and, in this version, two elements of data.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    Known::result(set).map(|_| ())
}
