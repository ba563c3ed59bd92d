//! Signals: inherited dispositions are reset at the start, and those that the daemon handles are read from a
//! signalfd.

#![expect(unsafe_code, reason = "dispositions of signals")]

use std::os::fd::{AsFd, BorrowedFd};

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

/// Signals that are blocked, and read from a signalfd.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Those that the daemon handles.
    ///
    /// # Errors
    /// The errno of `signalfd`, if the process has no descriptor left.
    pub fn block() -> Result<Self, Errno> {
        Ok(Self::of(handled())?)
    }

    pub(super) fn of(mask: SigSet) -> nix::Result<Self> {
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&mask, flags).map(Self)
    }

    /// Reads the number of the next pending signal, if any.
    pub fn next(&self) -> Option<i32> {
        let info = self.0.read_signal().ok()??;
        i32::try_from(info.ssi_signo).ok()
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
