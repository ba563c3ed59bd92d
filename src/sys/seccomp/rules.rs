//! The system calls that the running daemon may make, with their arguments.

use nix::fcntl::OFlag;
use nix::libc::{self, c_int, c_long};

use super::super::constants::Constant;
use super::super::{agent, atomic_file, log_sink};

/// A system call.
#[derive(Debug)]
pub struct Call {
    /// The number.
    pub number: c_long,
    /// The sets of arguments with which it is allowed.
    pub ways: &'static [Way],
}

/// Conditions on arguments, by their positions. The other arguments may have any value.
pub type Way = &'static [(u32, Is)];

/// A condition on an argument.
#[derive(Clone, Copy, Debug)]
pub enum Is {
    /// It is this int.
    Int(c_int),
    /// It is these flags of `open`, with or without `O_LARGEFILE`, which depends on the C library.
    Flags(OFlag),
    /// It is a null pointer.
    Null,
    /// It is the address of this constant.
    Constant(Constant),
    /// It is this descriptor.
    Descriptor(Descriptor),
}

/// A descriptor that is open from the start. Packet socket and pid file are optional.
#[derive(Clone, Copy, Debug)]
pub enum Descriptor {
    /// The route socket.
    Route,
    /// The packet socket.
    Packets,
    /// The pid file.
    PidFile,
}

const HERE: Is = Is::Int(libc::AT_FDCWD);
/// The mode of new files.
const MODE: Is = Is::Int(0o644);
const NO_FLAGS: Is = Is::Int(0);
/// The flags that [`super::super::file_id::identify_at`] passes.
const LOOK: Is = Is::Int(libc::AT_NO_AUTOMOUNT);
const LOOK_AT_OPEN: Is = Is::Int(libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH);
const SOCKET: Is = Is::Int(libc::SOL_SOCKET);

const fn call(number: c_long, ways: &'static [Way]) -> Call {
    Call { number, ways }
}

/// A call that is allowed with any arguments.
const fn any(number: c_long) -> Call {
    call(number, &[&[]])
}

/// What is looked at, by a call that takes its flags in this place.
const fn looks<const FLAGS: u32>() -> &'static [Way] {
    &[
        &[(0, HERE), (1, Is::Constant(Constant::AgentDirectory)), (FLAGS, LOOK)],
        &[(0, HERE), (1, Is::Constant(Constant::PidFile)), (FLAGS, LOOK)],
        &[(0, HERE), (1, Is::Constant(Constant::Metrics)), (FLAGS, LOOK)],
        &[(1, Is::Constant(Constant::NoPath)), (FLAGS, LOOK_AT_OPEN)],
        &[(1, Is::Constant(Constant::Namespace)), (FLAGS, LOOK)],
    ]
}

/// The calls, most frequent first, each with its purpose. Architectures differ in what they have for the same
/// purpose.
pub const ALLOWED: &[Call] = &[
    // Waiting for events.
    #[cfg(any(target_env = "musl", target_arch = "aarch64"))]
    any(libc::SYS_epoll_pwait),
    #[cfg(not(any(target_env = "musl", target_arch = "aarch64")))]
    any(libc::SYS_epoll_wait),
    // The time, where there is no vDSO.
    any(libc::SYS_clock_gettime),
    #[cfg(target_pointer_width = "32")]
    any(CLOCK_GETTIME64),
    // Input from the kernel, the agent, the network and the conntrackd helper.
    any(libc::SYS_recvfrom),
    // Output: to the peer of a connected socket, such as the service manager's, to any address over the route and
    // packet sockets, and to syslog.
    call(
        libc::SYS_sendto,
        &[
            &[(4, Is::Null)],
            &[(0, Is::Descriptor(Descriptor::Route))],
            &[(0, Is::Descriptor(Descriptor::Packets))],
            &[(4, Is::Constant(Constant::Syslog))],
        ],
    ),
    // How full the send buffer of the packet socket is; to wait while the agent's backlog is full.
    call(
        libc::SYS_ioctl,
        &[
            &[(0, Is::Descriptor(Descriptor::Packets)), (1, Is::Int(QUEUED))],
            &[(1, Is::Int(NONBLOCKING))],
        ],
    ),
    // Signals.
    any(libc::SYS_read),
    // The state file and the log.
    any(libc::SYS_write),
    any(libc::SYS_close),
    call(
        libc::SYS_openat,
        &[
            // The new state or metrics file, in the directory that is open.
            &[
                (1, Is::Constant(Constant::NewFile)),
                (2, Is::Flags(atomic_file::NEW_FILE)),
                (3, MODE),
            ],
            // `conf_dir` and the directory of the metrics, if they have been replaced.
            &[
                (0, HERE),
                (1, Is::Constant(Constant::ConfDir)),
                (2, Is::Flags(atomic_file::DIRECTORY)),
            ],
            &[
                (0, HERE),
                (1, Is::Constant(Constant::MetricsDirectory)),
                (2, Is::Flags(atomic_file::DIRECTORY)),
            ],
            // The log file, after it was moved away.
            &[
                (0, HERE),
                (1, Is::Constant(Constant::Log)),
                (2, Is::Flags(log_sink::AGAIN)),
                (3, MODE),
            ],
        ],
    ),
    call(
        libc::SYS_renameat,
        &[
            &[(1, Is::Constant(Constant::NewFile)), (2, HERE), (3, Is::Constant(Constant::State))],
            &[
                (1, Is::Constant(Constant::NewFile)),
                (2, HERE),
                (3, Is::Constant(Constant::Metrics)),
            ],
        ],
    ),
    // A new connection to the agent for each notification.
    call(
        libc::SYS_socket,
        &[&[
            (0, Is::Int(libc::AF_UNIX)),
            (1, Is::Int(libc::SOCK_STREAM | agent::SOCKET_FLAGS.bits())),
            (2, Is::Int(0)),
        ]],
    ),
    call(libc::SYS_connect, &[&[(1, Is::Constant(Constant::Agent))]]),
    call(libc::SYS_getsockopt, &[&[(1, SOCKET), (2, Is::Int(libc::SO_PEERCRED))]]),
    call(
        libc::SYS_epoll_ctl,
        &[&[(1, Is::Int(libc::EPOLL_CTL_ADD))], &[(1, Is::Int(libc::EPOLL_CTL_DEL))]],
    ),
    // The owner of the agent's directory; whether the pid file and the metrics file are still ours, the reopened log
    // ours alone, and the namespace there.
    call(FSTATAT, looks::<3>()),
    // The same on 32 bits, where libc makes this call if the kernel has it (Linux 4.11).
    #[cfg(target_pointer_width = "32")]
    call(libc::SYS_statx, looks::<2>()),
    // Whether standard error has room, if it is a pipe that could not be reopened.
    #[cfg(not(target_arch = "aarch64"))]
    any(libc::SYS_poll),
    #[cfg(target_arch = "aarch64")]
    any(libc::SYS_ppoll),
    // Which interface the packet socket receives on.
    call(libc::SYS_bind, &[&[(0, Is::Descriptor(Descriptor::Packets))]]),
    // Which interface address events are received for; how long the agent's backlog is waited for.
    call(
        libc::SYS_setsockopt,
        &[
            &[
                (0, Is::Descriptor(Descriptor::Route)),
                (1, SOCKET),
                (2, Is::Int(libc::SO_ATTACH_FILTER)),
            ],
            &[
                (0, Is::Descriptor(Descriptor::Route)),
                (1, SOCKET),
                (2, Is::Int(libc::SO_DETACH_FILTER)),
            ],
            &[(1, SOCKET), (2, Is::Int(libc::SO_SNDTIMEO))],
            // To which musl comes back where the kernel is older than 5.1.
            #[cfg(target_pointer_width = "32")]
            &[(1, SOCKET), (2, Is::Int(OLD_SEND_TIMEOUT))],
        ],
    ),
    // Removes a new file that could not be written, and at the end the metrics file and the pid file, which is
    // truncated if it may not be removed.
    call(
        libc::SYS_unlinkat,
        &[
            &[(1, Is::Constant(Constant::NewFile)), (2, NO_FLAGS)],
            &[(0, HERE), (1, Is::Constant(Constant::Metrics)), (2, NO_FLAGS)],
            &[(0, HERE), (1, Is::Constant(Constant::PidFile)), (2, NO_FLAGS)],
        ],
    ),
    #[cfg(target_pointer_width = "64")]
    call(libc::SYS_ftruncate, &[&[(0, Is::Descriptor(Descriptor::PidFile))]]),
    #[cfg(target_pointer_width = "32")]
    call(libc::SYS_ftruncate64, &[&[(0, Is::Descriptor(Descriptor::PidFile))]]),
    // The standard library checks that a descriptor is open before it closes it.
    #[cfg(debug_assertions)]
    call(libc::SYS_fcntl, &[&[(1, Is::Int(libc::F_GETFD))]]),
    // The end, at which the standard library unmaps the stack of its signal handler.
    any(libc::SYS_exit_group),
    any(libc::SYS_sigaltstack),
    any(libc::SYS_munmap),
];

/// The libc crate lacks it on some architectures.
#[cfg(all(target_pointer_width = "32", target_arch = "mips"))]
const CLOCK_GETTIME64: c_long = 4403;
#[cfg(all(target_pointer_width = "32", not(target_arch = "mips")))]
const CLOCK_GETTIME64: c_long = 403;

/// `fstatat64` on 32-bit architectures. The libc crate lacks it on some.
#[cfg(target_pointer_width = "64")]
const FSTATAT: c_long = libc::SYS_newfstatat;
#[cfg(all(target_pointer_width = "32", target_arch = "mips"))]
const FSTATAT: c_long = 4293;
#[cfg(all(target_pointer_width = "32", not(target_arch = "mips")))]
const FSTATAT: c_long = 327;

/// `SIOCOUTQ` (`include/uapi/linux/sockios.h`), whose type differs between C libraries.
const QUEUED: c_int = if cfg!(target_arch = "mips") { 0x7472 } else { 0x5411 };

/// `FIONBIO` (`include/uapi/asm-generic/ioctls.h`), whose type differs between C libraries.
const NONBLOCKING: c_int = if cfg!(target_arch = "mips") { 0x667e } else { 0x5421 };

/// `SO_SNDTIMEO_OLD` (`include/uapi/asm-generic/socket.h`), of a 32-bit time.
#[cfg(target_pointer_width = "32")]
const OLD_SEND_TIMEOUT: c_int = if cfg!(target_arch = "mips") { 0x1005 } else { 21 };
