//! The system calls that the daemon may make once it runs, and with which arguments.

use nix::fcntl::OFlag;
use nix::libc::{self, c_int, c_long};

use super::super::constants::Constant;
use super::super::{agent, log_sink, state_file};

/// A system call.
#[derive(Debug)]
pub struct Call {
    /// Its number.
    pub number: c_long,
    /// The ways to make it. No other is allowed.
    pub ways: &'static [Way],
}

/// What certain arguments have to be, by their places. The others may be anything.
pub type Way = &'static [(u32, Is)];

/// What an argument has to be.
#[derive(Clone, Copy, Debug)]
pub enum Is {
    /// An int.
    Int(c_int),
    /// Flags of `open`, beside `O_LARGEFILE`, which libc gives as it likes.
    Flags(OFlag),
    /// No address.
    Null,
    /// The address of a constant.
    Constant(Constant),
    /// A descriptor.
    Descriptor(Descriptor),
}

/// A descriptor that the daemon has from the start. Not every daemon has all of them.
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
/// Of new files.
const MODE: Is = Is::Int(0o644);
const NO_FLAGS: Is = Is::Int(0);
/// As [`super::super::file_id::identify_at`] has them.
const LOOK: Is = Is::Int(libc::AT_NO_AUTOMOUNT);
const LOOK_AT_OPEN: Is = Is::Int(libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH);
const SOCKET: Is = Is::Int(libc::SOL_SOCKET);

const fn call(number: c_long, ways: &'static [Way]) -> Call {
    Call { number, ways }
}

/// With any arguments.
const fn any(number: c_long) -> Call {
    call(number, &[&[]])
}

/// Each with what it is for; the most frequent first. On an architecture that lacks one there is another
/// of the same purpose.
pub const ALLOWED: &[Call] = &[
    // Sleeping.
    #[cfg(any(target_env = "musl", target_arch = "aarch64"))]
    any(libc::SYS_epoll_pwait),
    #[cfg(not(any(target_env = "musl", target_arch = "aarch64")))]
    any(libc::SYS_epoll_wait),
    // The time, where the kernel does not show it without a call.
    any(libc::SYS_clock_gettime),
    #[cfg(target_pointer_width = "32")]
    any(CLOCK_GETTIME64),
    // What comes from the kernel, the agent, the wire and conntrackd.
    any(libc::SYS_recvfrom),
    // What goes to them: over the route and the packet socket to whom we like, which may be seen in a
    // register only; over Unix sockets to whom they are connected to, or to the system's log.
    call(
        libc::SYS_sendto,
        &[
            &[(4, Is::Null)],
            &[(0, Is::Descriptor(Descriptor::Route))],
            &[(0, Is::Descriptor(Descriptor::Packets))],
            &[(4, Is::Constant(Constant::Syslog))],
        ],
    ),
    // How much the send buffer of the packet socket holds.
    call(libc::SYS_ioctl, &[&[(0, Is::Descriptor(Descriptor::Packets)), (1, Is::Int(QUEUED))]]),
    // Signals, the output of conntrackd.
    any(libc::SYS_read),
    // The state file and the log.
    any(libc::SYS_write),
    any(libc::SYS_close),
    call(
        libc::SYS_openat,
        &[
            // The new state file, in whichever directory is `conf_dir`.
            &[
                (1, Is::Constant(Constant::NewState)),
                (2, Is::Flags(state_file::NEW_FILE)),
                (3, MODE),
            ],
            // `conf_dir`, should it be another one by now.
            &[
                (0, HERE),
                (1, Is::Constant(Constant::ConfDir)),
                (2, Is::Flags(state_file::DIRECTORY)),
            ],
            // The log that was moved away.
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
        &[&[(1, Is::Constant(Constant::NewState)), (2, HERE), (3, Is::Constant(Constant::State))]],
    ),
    // The connection to the agent, made anew each time.
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
        &[&[(1, Is::Int(libc::EPOLL_CTL_ADD))], &[(1, Is::Int(libc::EPOLL_CTL_MOD))]],
    ),
    // The owner of the agent's directory; whether the pid file is still ours, the reopened log ours alone, and
    // the namespace there.
    call(
        FSTATAT,
        &[
            &[(0, HERE), (1, Is::Constant(Constant::AgentDirectory)), (3, LOOK)],
            &[(0, HERE), (1, Is::Constant(Constant::PidFile)), (3, LOOK)],
            &[(1, Is::Constant(Constant::NoPath)), (3, LOOK_AT_OPEN)],
            &[(1, Is::Constant(Constant::Namespace)), (3, LOOK)],
        ],
    ),
    // The same on 32 bits, where libc makes this call if the kernel has it (Linux 4.11).
    #[cfg(target_pointer_width = "32")]
    call(
        libc::SYS_statx,
        &[
            &[(0, HERE), (1, Is::Constant(Constant::AgentDirectory)), (2, LOOK)],
            &[(0, HERE), (1, Is::Constant(Constant::PidFile)), (2, LOOK)],
            &[(1, Is::Constant(Constant::NoPath)), (2, LOOK_AT_OPEN)],
            &[(1, Is::Constant(Constant::Namespace)), (2, LOOK)],
        ],
    ),
    // Whether standard error takes a line at once, if that is a pipe which cannot be opened anew.
    #[cfg(not(target_arch = "aarch64"))]
    any(libc::SYS_poll),
    #[cfg(target_arch = "aarch64")]
    any(libc::SYS_ppoll),
    // Which interface claims of the VIP are heard on.
    call(libc::SYS_bind, &[&[(0, Is::Descriptor(Descriptor::Packets))]]),
    // Which interfaces address events are heard of.
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
        ],
    ),
    // What is left of a state file that could not be written, and the pid file at the end, which is
    // emptied if it may not be removed.
    call(
        libc::SYS_unlinkat,
        &[
            &[(1, Is::Constant(Constant::NewState)), (2, NO_FLAGS)],
            &[(0, HERE), (1, Is::Constant(Constant::PidFile)), (2, NO_FLAGS)],
        ],
    ),
    #[cfg(target_pointer_width = "64")]
    call(libc::SYS_ftruncate, &[&[(0, Is::Descriptor(Descriptor::PidFile))]]),
    #[cfg(target_pointer_width = "32")]
    call(libc::SYS_ftruncate64, &[&[(0, Is::Descriptor(Descriptor::PidFile))]]),
    // Before it closes a descriptor, the standard library looks whether there is one.
    #[cfg(debug_assertions)]
    call(libc::SYS_fcntl, &[&[(1, Is::Int(libc::F_GETFD))]]),
    // The end, where musl gives memory back.
    any(libc::SYS_exit_group),
    #[cfg(target_env = "musl")]
    any(libc::SYS_munmap),
];

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

/// `SIOCOUTQ` (`include/uapi/linux/sockios.h`), of which each libc has another type.
const QUEUED: c_int = if cfg!(target_arch = "mips") { 0x7472 } else { 0x5411 };
