//! Signals: inherited dispositions are reset at the start, and those that the daemon handles are read from a
//! signalfd.

#![expect(unsafe_code, reason = "dispositions of signals")]

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::errno::Errno;

/// The signals that the daemon handles.
fn handled() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1].into_iter().collect()
}

/// Resets all dispositions, and blocks the signals that the daemon handles, so that one that comes early waits
/// for the loop. Ignores SIGPIPE and SIGXFSZ: writes fail with EPIPE and EFBIG.
///
/// To be called first of all.
pub fn init() {
    reset();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: nothing handles a signal yet.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // This never fails.
    let _ = handled().thread_set_mask();
}

/// Gives every signal its default disposition. Leaves the mask, as a blocked signal may be pending.
pub(super) fn reset() {
    // The rest are real-time signals, which mean nothing here.
    for signal in 1..32 {
        // SAFETY: installs no handler. It fails for SIGKILL and SIGSTOP, which cannot be changed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks all signals.
pub fn unblock() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Blocks the signals that the daemon handles, to be read from a signalfd.
pub(crate) fn block() -> Result<SignalFd, Errno> {
    Ok(block_these(handled())?)
}

pub(super) fn block_these(mask: SigSet) -> nix::Result<SignalFd> {
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Reads the number of the next pending signal, if any.
pub fn next(signals: &SignalFd) -> Option<i32> {
    let info = signals.read_signal().ok()??;
    i32::try_from(info.ssi_signo).ok()
}
