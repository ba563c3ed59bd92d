//! The system calls that the running daemon may make (`seccomp(2)`). Any other kills it with `SIGSYS`, and a kernel with
//! auditing logs it. Filters cannot read memory, so [`super::landlock`] restricts paths.

#![expect(unsafe_code, reason = "no seccomp library supports MIPS")]

use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int, c_long, sock_filter, sock_fprog};

use crate::errno::Errno;
use crate::sys::bpf::{jeq, load, ret, return_if};

/// The calls that are allowed with any arguments. The C libraries differ in what they call for the same purpose.
const ALLOWED: &[&[c_long]] = &[
    &[
        // Waiting for events, and the time, where there is no vDSO.
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_ctl,
        libc::SYS_clock_gettime,
        // Netlink, signals, frames, helpers, the agent, the service manager, the log.
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendto,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_close,
        // The agent, and the owner of its socket.
        libc::SYS_connect,
        libc::SYS_getsockopt,
        // The interface whose frames are received.
        libc::SYS_bind,
        // The state and its spare; where there is no renameat, every rename.
        libc::SYS_renameat2,
        // The state, the metrics, the log, the pid file, the check of the namespace, and keepalived's pid file.
        libc::SYS_openat,
        #[cfg(not(any(target_arch = "riscv64", target_arch = "loongarch64")))]
        libc::SYS_renameat,
        libc::SYS_unlinkat,
        libc::SYS_ftruncate,
        libc::SYS_flock,
        #[cfg(not(target_arch = "loongarch64"))]
        libc::SYS_fstat,
        libc::SYS_statx,
        FSTATAT,
        // The check that keepalived runs.
        libc::SYS_pidfd_open,
        // The checks that standard error has room and that keepalived runs, and the wait for the end of a helper.
        libc::SYS_ppoll,
        // The rest of a wait that a stop or a suspension has interrupted (`restart_syscall(2)`).
        libc::SYS_restart_syscall,
        // The exit, at which the standard library unmaps the stack of its signal handler.
        libc::SYS_exit_group,
        libc::SYS_munmap,
        libc::SYS_sigaltstack,
    ],
    // Reads and writes of the state and its spare. The libc crate lacks them on MIPS
    // (`arch/mips/kernel/syscalls/syscall_o32.tbl`).
    #[cfg(not(target_arch = "mips"))]
    &[libc::SYS_pread64, libc::SYS_pwrite64],
    #[cfg(target_arch = "mips")]
    &[4200, 4201],
    // Names that newer architectures no longer have.
    #[cfg(any(target_pointer_width = "32", target_arch = "x86_64", target_arch = "mips64"))]
    &[libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_poll],
    // Wider numbers. The libc crate lacks clock_gettime64 on some architectures.
    #[cfg(target_pointer_width = "32")]
    &[
        if cfg!(target_arch = "mips") { 4403 } else { 403 },
        libc::SYS_stat64,
        libc::SYS_lstat64,
        libc::SYS_fstat64,
        libc::SYS_ftruncate64,
    ],
    // glibc's `send` and `recv` on architectures that have always had both calls.
    #[cfg(all(target_env = "gnu", any(target_arch = "arm", target_arch = "mips")))]
    &[libc::SYS_send, libc::SYS_recv],
];

/// Positions of arguments, each with the value that it must have.
type Arguments = [(u32, c_int)];

/// The calls that are allowed only with some arguments.
const BY_ARGUMENTS: &[(c_long, &Arguments)] = &[
    // A connection to the agent.
    (
        libc::SYS_socket,
        &[(0, libc::AF_UNIX), (1, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)],
    ),
    // The times of a file that is open. With a path, it changes those of any file of root's.
    (libc::SYS_utimensat, &[(1, NULL)]),
    #[cfg(target_pointer_width = "32")]
    (UTIMENSAT_TIME64, &[(1, NULL)]),
    // The lock of keepalived's pid file.
    (libc::SYS_fcntl, &[(1, libc::F_OFD_GETLK)]),
    #[cfg(target_pointer_width = "32")]
    (libc::SYS_fcntl64, &[(1, libc::F_OFD_GETLK)]),
    // With debug assertions, the standard library checks that a descriptor is open before it closes it.
    (libc::SYS_fcntl, &[(1, libc::F_GETFD)]),
    // musl's open(2) sets close-on-exec once more.
    (libc::SYS_fcntl, &[(1, libc::F_SETFD)]),
    #[cfg(target_pointer_width = "32")]
    (libc::SYS_fcntl64, &[(1, libc::F_SETFD)]),
];

/// A null pointer, of which both halves are compared.
const NULL: c_int = 0;

/// The libc crate lacks it on some architectures.
#[cfg(target_pointer_width = "32")]
const UTIMENSAT_TIME64: c_long = if cfg!(target_arch = "mips") { 4412 } else { 412 };

/// `newfstatat`, and `fstatat64` on 32-bit architectures. The libc crate lacks it on some.
const FSTATAT: c_long = if cfg!(target_arch = "x86_64") {
    262
} else if cfg!(target_arch = "x86") {
    300
} else if cfg!(target_arch = "mips") {
    4293
} else if cfg!(target_arch = "mips64") {
    5252
} else if cfg!(target_pointer_width = "64") {
    79
} else {
    327
};

/// `AUDIT_ARCH_*` (`include/uapi/linux/audit.h`): the ELF machine, with a bit each for 64-bit and little-endian. glibc for
/// i386 makes all calls about sockets by `socketcall(2)`, whose arguments a filter cannot read.
const ARCHITECTURES: [(bool, u32); 9] = [
    (cfg!(target_arch = "x86_64"), 0xc000_003e),
    (cfg!(all(target_arch = "x86", not(target_env = "gnu"))), 0x4000_0003),
    (cfg!(target_arch = "aarch64"), 0xc000_00b7),
    (cfg!(target_arch = "arm"), 0x4000_0028),
    (cfg!(all(target_arch = "mips", target_endian = "big")), 0x0000_0008),
    (cfg!(all(target_arch = "mips", target_endian = "little")), 0x4000_0008),
    (cfg!(all(target_arch = "mips64", target_endian = "big")), 0x8000_0008),
    (cfg!(all(target_arch = "mips64", target_endian = "little")), 0xc000_0008),
    (cfg!(target_arch = "riscv64"), 0xc000_00f3),
];

/// Offsets in `struct seccomp_data` (`include/uapi/linux/seccomp.h`). Arguments have 64 bits in the host's byte order.
/// All that are compared are ints, of which the kernel uses the low half, or [`NULL`].
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = if cfg!(target_endian = "big") { 20 } else { 16 };

/// Before Linux 4.14 it kills the thread, and this process has one.
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Installs the filter for good. Returns `false` if the architecture or the kernel does not support it.
pub fn install() -> Result<bool, Errno> {
    let own = ARCHITECTURES.iter().find(|(is_own, _)| *is_own);
    let Some((_, architecture)) = own else { return Ok(false) };
    let mut program = program(*architecture);
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::E2BIG)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    let (set, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
    // SAFETY: the pointer and length are those of one program, which the kernel copies.
    match NixErrno::result(unsafe { libc::prctl(set, mode, &raw const program, 0, 0) }) {
        Err(NixErrno::EINVAL) => Ok(false),
        installed => Ok(installed.map(|_| true)?),
    }
}

fn program(architecture: u32) -> Vec<sock_filter> {
    // The same number is another call on another architecture.
    let mut program = vec![load(libc::BPF_W, ARCH), jeq(architecture, 1, 0), ret(KILL)];
    let allowed = ALLOWED.iter().copied().flatten().map(|call| (*call, &[][..]));
    for (call, arguments) in allowed.chain(BY_ARGUMENTS.iter().copied()) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        let mut conditions = vec![(libc::BPF_W, NUMBER, number)];
        for (position, value) in arguments {
            let low = ARGUMENTS + 8 * position;
            conditions.push((libc::BPF_W, low, value.cast_unsigned()));
            if *value == NULL {
                conditions.push((libc::BPF_W, low ^ 4, 0));
            }
        }
        program.extend(return_if(&conditions, libc::SECCOMP_RET_ALLOW));
    }
    program.push(ret(KILL));
    program
}
