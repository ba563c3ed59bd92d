//! Drops privileges: groups, user, capabilities, resource limits.

#![expect(unsafe_code, reason = "nix sets no capabilities")]

use std::ptr;

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

/// Drops supplementary groups, group, user and all capabilities for good, and sets `no_new_privs`. Makes the process
/// undumpable, so that other processes of its user cannot trace it.
///
/// Root retains `CAP_DAC_OVERRIDE`, without which it cannot use other users' directories and sockets, such as an agent's.
/// The error has the step that failed.
pub(crate) fn drop(identity: RunAs) -> Result<(), (&'static str, NixErrno)> {
    // Another user must not keep the starter's groups.
    if geteuid().is_root() || identity.user.is_some_and(|user| user != geteuid()) {
        clear_groups(identity).map_err(in_step("clearing groups (CAP_SETGID)"))?;
    }
    if geteuid().is_root() {
        drop_bounding_set(0);
    }
    let step = "becoming the user and group (CAP_SETUID, CAP_SETGID)";
    become_user(identity).map_err(in_step(step))?;
    let kept = if geteuid().is_root() { 1 << CAP_DAC_OVERRIDE } else { 0 };
    set_capabilities(kept).map_err(in_step("dropping capabilities"))?;
    prctl::set_no_new_privs().map_err(in_step("setting no_new_privs"))?;
    prctl::set_dumpable(false).map_err(in_step("becoming undumpable"))
}

fn in_step(step: &'static str) -> impl FnOnce(NixErrno) -> (&'static str, NixErrno) {
    move |errno| (step, errno)
}

fn become_user(RunAs { user, group }: RunAs) -> nix::Result<()> {
    group.map_or(Ok(()), |group| setresgid(group, group, group))?;
    user.map_or(Ok(()), |user| setresuid(user, user, user))
}

/// Limits root to the rights that a client of conntrackd needs: programs that it executes have `CAP_DAC_OVERRIDE` alone,
/// and it can still become `identity` and root again.
pub(crate) fn limit_to_client(identity: RunAs) -> nix::Result<()> {
    if !geteuid().is_root() {
        return drop_own_capabilities();
    }
    // With this bit, another user would retain root's rights to files (`capabilities(7)`).
    // SAFETY: system calls without pointers.
    unsafe {
        let bits = NixErrno::result(libc::prctl(libc::PR_GET_SECUREBITS))?;
        if bits & SECBIT_NO_SETUID_FIXUP != 0 {
            let cleared = bits & !SECBIT_NO_SETUID_FIXUP;
            NixErrno::result(libc::prctl(libc::PR_SET_SECUREBITS, cleared))?;
        }
    }
    leave_session_keyring()?;
    clear_groups(identity)?;
    drop_bounding_set(1 << CAP_DAC_OVERRIDE);
    set_capabilities(1 << CAP_DAC_OVERRIDE | 1 << CAP_SETGID | 1 << CAP_SETUID)
}

/// Becomes the hook's user for good. Retains root's right to kill processes that the hook starts as another user, as by
/// `sudo`. No executed program inherits this right.
pub(crate) fn become_hook_user(identity: RunAs, groups: &[Gid]) -> nix::Result<()> {
    let was_root = geteuid().is_root();
    if identity.user.is_some_and(|user| user != geteuid()) {
        leave_session_keyring()?;
    }
    if was_root && identity != RunAs::default() {
        setgroups(groups)?;
        prctl::set_keepcaps(true)?;
    }
    become_user(identity)?;
    match (was_root, geteuid().is_root()) {
        (true, true) => Ok(()),
        (true, false) => set_capabilities(1 << CAP_KILL),
        (false, _) => drop_own_capabilities(),
    }
}

/// Drops the capabilities that a daemon needs whose starter is not root. Programs inherit the starter's others, such as
/// those of systemd's `AmbientCapabilities=`.
fn drop_own_capabilities() -> nix::Result<()> {
    let own = 1 << CAP_NET_RAW | 1 << CAP_SETGID | 1 << CAP_SETUID | 1 << CAP_SYS_ADMIN;
    let (header, [first, second]) = capabilities()?;
    put_capabilities(header, [first.map(|set| set & !own), second])
}

/// Gives this process an empty session keyring. Otherwise another user's hook, or conntrackd, possesses the keys of root's
/// login session (`session-keyring(7)`). It counts against root's quota, as an ordinary user's allows only 200 keys.
fn leave_session_keyring() -> nix::Result<()> {
    let (join, anonymous) = (libc::KEYCTL_JOIN_SESSION_KEYRING, ptr::null::<u8>());
    // SAFETY: a null pointer asks for a keyring without a name.
    match NixErrno::result(unsafe { libc::syscall(libc::SYS_keyctl, join, anonymous) }) {
        // Without keyrings in the kernel, or with a container's filter, the hook cannot use keys either.
        Err(NixErrno::ENOSYS | NixErrno::EPERM) => Ok(()),
        joined => joined.map(|_| ()),
    }
}

/// Prevents this process from starting others. The kernel exempts root.
pub(crate) fn forbid_processes() -> Result<(), Errno> {
    Ok(setrlimit(Resource::RLIMIT_NPROC, 0, 0)?)
}

// include/uapi/linux/capability.h
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
// include/uapi/linux/securebits.h
const SECBIT_NO_SETUID_FIXUP: libc::c_int = 1 << 2;

/// Drops supplementary groups. A user namespace of an ordinary user forbids that, and does not need it.
fn clear_groups(identity: RunAs) -> nix::Result<()> {
    match setgroups(&[]) {
        Err(NixErrno::EPERM) if identity == RunAs::default() || getgroups()?.is_empty() => Ok(()),
        result => result,
    }
}

/// Drops all other capabilities from the bounding set, so that no executed program regains them. Without `CAP_SETPCAP`,
/// as in a container, only `no_new_privs` prevents that.
fn drop_bounding_set(kept: u64) {
    let is_dropped = |capability: libc::c_ulong| {
        // SAFETY: a system call without pointers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 }
    };
    // Fails beyond the last capability of this kernel.
    let _ = (0..64).filter(|capability| kept & 1 << capability == 0).all(is_dropped);
}

/// Limits the permitted and effective capabilities to a mask. Clears the inheritable ones, and so the ambient ones.
fn set_capabilities(kept: u32) -> nix::Result<()> {
    let (header, [[_, permitted, _], _]) = capabilities()?;
    let kept = kept & permitted;
    put_capabilities(header, [[kept, kept, 0], [0; 3]])
}

/// The effective, permitted and inheritable capabilities: of the first 32, then of the others.
type Capabilities = [[u32; 3]; 2];

/// Returns this process's capabilities, behind the header of the calls.
fn capabilities() -> nix::Result<([u32; 2], Capabilities)> {
    // The version, and 0 for this process.
    let mut header = [LINUX_CAPABILITY_VERSION_3, 0];
    let mut data = Capabilities::default();
    let (head, body) = (header.as_mut_ptr(), data.as_mut_ptr());
    // SAFETY: the kernel reads the header, and in this version writes two elements of data.
    NixErrno::result(unsafe { libc::syscall(libc::SYS_capget, head, body) })?;
    Ok((header, data))
}

fn put_capabilities(mut header: [u32; 2], data: Capabilities) -> nix::Result<()> {
    let head = header.as_mut_ptr();
    // SAFETY: the kernel reads both.
    NixErrno::result(unsafe { libc::syscall(libc::SYS_capset, head, data.as_ptr()) })?;
    Ok(())
}
