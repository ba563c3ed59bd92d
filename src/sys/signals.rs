//! Signals: inherited dispositions are reset at the start; the daemon reads the signals that it handles from a signalfd.

#![expect(unsafe_code, reason = "dispositions of signals")]

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::errno::Errno;

/// The signals that the daemon handles.
pub(crate) const HANDLED: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Resets all dispositions, and blocks the signals that the daemon handles until the loop reads them. Ignores SIGPIPE and
/// SIGXFSZ, so that writes fail with EPIPE and EFBIG instead.
pub fn init() {
    reset();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Never fails.
    let _ = SigSet::from_iter(HANDLED).thread_set_mask();
}

/// Gives every signal except real-time ones its default disposition. Does not unblock them, as one may be pending.
pub(crate) fn reset() {
    set_all(libc::SIG_DFL);
}

/// Discards the pending signals, except real-time ones, and resets all dispositions.
pub(crate) fn discard_pending() {
    // A signal that is ignored is no longer pending (`do_sigaction` in `kernel/signal.c`).
    set_all(libc::SIG_IGN);
    reset();
}

fn set_all(disposition: libc::sighandler_t) {
    for signal in 1..32 {
        // SAFETY: installs no handler. Fails for SIGKILL and SIGSTOP, which cannot be changed.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Unblocks all signals but SIGUSR2, which logrotate sends to each process of this program, also to a `--list` or a starter.
/// Never fails.
pub fn unblock_all_but_usr2() {
    let _ = SigSet::from_iter([Signal::SIGUSR2]).thread_set_mask();
}

/// Unblocks all signals. Never fails.
pub fn unblock() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Makes the kernel reap children that end from now on.
pub(crate) fn reap() {
    // SAFETY: installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Blocks the signals that the daemon handles, and opens a signalfd for them. Makes the kernel reap helpers, and orphans
/// in a container whose process 1 is the daemon.
pub(crate) fn block() -> Result<SignalFd, Errno> {
    reap();
    Ok(block_these(HANDLED.into_iter().collect())?)
}

pub(crate) fn block_these(mask: SigSet) -> nix::Result<SignalFd> {
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Reads the number of the next pending signal, if any.
pub(crate) fn next(signals: &SignalFd) -> Result<Option<i32>, Errno> {
    let info = signals.read_signal()?;
    Ok(info.and_then(|info| i32::try_from(info.ssi_signo).ok()))
}
