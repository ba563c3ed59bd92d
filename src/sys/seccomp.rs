//! The system calls that the daemon may make once it runs (`seccomp(2)`).

#![expect(unsafe_code, reason = "no library of these does MIPS")]

use core::mem::size_of;

use heapless::Vec;
use nix::errno::Errno as Known;
use nix::libc::{self, c_int, c_long, c_void, siginfo_t, sock_filter, sock_fprog};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::filter::{jump_if, jump_unless, statement};
use crate::errno::Errno;
use crate::log::last_words;

/// Each with what it is for, beside those of [`restricted`]. On an architecture that lacks one there is
/// another of the same purpose.
pub const ALLOWED: &[c_long] = &[
    // Sleeping.
    #[cfg(any(target_env = "musl", target_arch = "aarch64"))]
    libc::SYS_epoll_pwait,
    #[cfg(not(any(target_env = "musl", target_arch = "aarch64")))]
    libc::SYS_epoll_wait,
    // The connection to the agent, made anew each time.
    libc::SYS_connect,
    libc::SYS_getsockopt,
    libc::SYS_epoll_ctl,
    // What comes from the kernel, the agent, the wire and conntrackd, and what goes to them.
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    // Signals, the output of conntrackd.
    libc::SYS_read,
    // The state file and the log.
    libc::SYS_openat,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_renameat,
    // Before it closes a descriptor, the standard library looks whether there is one.
    #[cfg(debug_assertions)]
    libc::SYS_fcntl,
    // The pid file at the end, and what is left of a state file that could not be written.
    libc::SYS_unlinkat,
    #[cfg(target_pointer_width = "64")]
    libc::SYS_ftruncate,
    #[cfg(target_pointer_width = "32")]
    libc::SYS_ftruncate64,
    // Whether standard error takes a line at once, if that is a pipe which cannot be opened anew.
    #[cfg(not(target_arch = "aarch64"))]
    libc::SYS_poll,
    #[cfg(target_arch = "aarch64")]
    libc::SYS_ppoll,
    // Which interface claims of the VIP are heard on, and which ones address events are heard of.
    libc::SYS_bind,
    libc::SYS_setsockopt,
    // Whom the agent's directory belongs to; whether the namespace is still there. Before Linux 4.11
    // there is but the older call.
    libc::SYS_statx,
    FSTATAT,
    // The time, where the kernel does not show it without a call.
    libc::SYS_clock_gettime,
    #[cfg(target_pointer_width = "32")]
    CLOCK_GETTIME64,
    // The end, where musl gives memory back.
    libc::SYS_exit_group,
    #[cfg(target_env = "musl")]
    libc::SYS_munmap,
];

/// Those that are allowed only with a certain argument: in which place, and which.
#[must_use]
pub fn restricted() -> [(c_long, u32, u32); RESTRICTED] {
    let unix = u32::try_from(libc::AF_UNIX).unwrap_or(u32::MAX);
    let queued = u32::try_from(libc::TIOCOUTQ).unwrap_or(u32::MAX);
    [
        // The connection to the agent is a Unix socket.
        (libc::SYS_socket, 0, unix),
        // How much the send buffer of the packet socket holds.
        (libc::SYS_ioctl, 1, queued),
    ]
}

const RESTRICTED: usize = 2;

/// Not known to libc under this name everywhere.
#[cfg(all(target_pointer_width = "32", target_arch = "mips"))]
const CLOCK_GETTIME64: c_long = 4403;
#[cfg(all(target_pointer_width = "32", not(target_arch = "mips")))]
const CLOCK_GETTIME64: c_long = 403;

/// It has another name where files have had 32-bit sizes, which libc does not know everywhere.
#[cfg(target_pointer_width = "64")]
const FSTATAT: c_long = libc::SYS_newfstatat;
#[cfg(all(target_pointer_width = "32", target_arch = "mips"))]
const FSTATAT: c_long = 4293;
#[cfg(all(target_pointer_width = "32", not(target_arch = "mips")))]
const FSTATAT: c_long = 327;

/// `AUDIT_ARCH_*` (`include/uapi/linux/audit.h`): the ELF machine, and bits for 64 and little-endian.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "arm") {
    Some(0x4000_0028)
} else if cfg!(all(target_arch = "mips", target_endian = "big")) {
    Some(0x0000_0008)
} else if cfg!(all(target_arch = "mips", target_endian = "little")) {
    Some(0x4000_0008)
} else {
    None
};

/// Offsets in `struct seccomp_data` (`include/uapi/linux/seccomp.h`): words in the host's byte order.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The low half of an argument, which has 64 bits.
fn argument(place: u32) -> u32 {
    (if cfg!(target_endian = "big") { 20 } else { 16 }) + 8 * place
}

type Program = Vec<sock_filter, { ALLOWED.len() + 4 * RESTRICTED + 5 }>;

/// Installs the filter for good. A call that is not allowed ends the daemon, with a line in the log.
/// Tells whether there is a filter for this architecture and kernel.
///
/// # Errors
/// The errno of installing it, for other reasons than that the kernel has no such thing.
pub fn install() -> Result<bool, Errno> {
    let Some(architecture) = ARCHITECTURE else { return Ok(false) };
    let mut program = program(architecture);
    report_violations()?;
    Ok(set(&mut program)?)
}

/// Tells whether the kernel has such a thing.
fn set(program: &mut [sock_filter]) -> nix::Result<bool> {
    let len = u16::try_from(program.len()).map_err(|_| Known::EINVAL)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the program tells the truth about its length, and the kernel copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    };
    match Known::result(installed) {
        Ok(_) => Ok(true),
        // Built without CONFIG_SECCOMP_FILTER.
        Err(Known::EINVAL | Known::ENOSYS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// For a client of conntrackd, whose configuration may be hostile: it can connect to Unix sockets only, be
/// handed no descriptor over them, make no namespaces, and look into nobody.
pub(super) fn limit_client() -> nix::Result<()> {
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Reckoned from the instruction behind each jump.
    let mut program = [
        instruction(LOAD, 0, 0, ARCH),
        instruction(EQUAL, 0, 10, ARCHITECTURE.unwrap_or_default()),
        instruction(LOAD, 0, 0, NUMBER),
        instruction(EQUAL, 0, 2, number(libc::SYS_socket)),
        instruction(LOAD, 0, 0, argument(0)),
        instruction(EQUAL, 5, 6, libc::AF_UNIX.cast_unsigned()),
        instruction(EQUAL, 5, 0, number(libc::SYS_recvmsg)),
        instruction(EQUAL, 4, 0, number(libc::SYS_recvmmsg)),
        instruction(EQUAL, 3, 0, number(libc::SYS_io_uring_setup)),
        instruction(EQUAL, 2, 0, number(libc::SYS_unshare)),
        instruction(EQUAL, 1, 0, number(libc::SYS_ptrace)),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
    ];
    if ARCHITECTURE.is_some() {
        set(&mut program)?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are small")]
const fn number(call: c_long) -> u32 {
    call as u32
}

fn program(architecture: u32) -> Program {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let end = |verdict| statement(libc::BPF_RET | libc::BPF_K, verdict);
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let mut program = Program::new();
    let calls = ALLOWED.len();
    let mut push = |instruction| {
        let pushed = program.push(instruction);
        debug_assert!(pushed.is_ok(), "a program of known length");
    };
    // Numbers mean other calls on other architectures.
    push(load(ARCH));
    push(jump_unless(architecture, 4 * RESTRICTED + calls + 1));
    push(load(NUMBER));
    for (before, (call, place, value)) in restricted().into_iter().enumerate() {
        push(jump_unless(number(call), 3));
        push(load(argument(place)));
        push(jump_if(value, 4 * (RESTRICTED - before) + calls - 2));
        push(end(libc::SECCOMP_RET_TRAP));
    }
    for (before, call) in ALLOWED.iter().enumerate() {
        push(jump_if(number(*call), calls - before));
    }
    push(end(libc::SECCOMP_RET_TRAP));
    push(end(libc::SECCOMP_RET_ALLOW));
    program
}

/// Has the kernel call [`on_violation`] instead of killing without a word.
fn report_violations() -> Result<(), Errno> {
    let handler = SigHandler::SigAction(on_violation);
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler is called by the thread that made the call, between two instructions of
    // ours or of libc, and never returns.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

extern "C" fn on_violation(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    /// Of the number in `siginfo_t`: behind three ints, padding, and a pointer to the instruction.
    const NUMBER: usize =
        (3 * size_of::<c_int>()).next_multiple_of(align_of::<usize>()) + size_of::<usize>();
    // SAFETY: the kernel passes a valid `siginfo_t`, in which SIGSYS has the number there.
    let number = unsafe { info.cast::<u8>().add(NUMBER).cast::<c_int>().read_unaligned() };
    last_words!("seccomp: system call {} is not allowed; ending", number);
    // SAFETY: ends the process, whatever state it is in.
    unsafe { libc::_exit(1) }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::prctl::set_no_new_privs;
    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, recvmsg, socket, socketpair,
    };
    use std::os::fd::AsRawFd;

    use super::*;

    /// A filter is its thread's own.
    #[test]
    fn client_reaches_unix_sockets_only() {
        let client = std::thread::spawn(|| {
            let (ours, theirs) =
                socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_NONBLOCK)
                    .unwrap();
            set_no_new_privs().unwrap();
            limit_client().unwrap();
            let open = |family| socket(family, SockType::Datagram, SockFlag::empty(), None);
            assert!(open(AddressFamily::Unix).is_ok());
            for family in [AddressFamily::Inet, AddressFamily::Inet6, AddressFamily::Netlink] {
                assert_eq!(open(family).unwrap_err(), Known::EPERM);
            }
            let received = recvmsg::<()>(theirs.as_raw_fd(), &mut [], None, MsgFlags::empty());
            assert_eq!(received.unwrap_err(), Known::EPERM);
            assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Known::EPERM));
            drop(ours);
        });
        client.join().unwrap();
    }
}
