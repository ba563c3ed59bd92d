//! Signals: what was inherited of them is undone at the start, and those that the daemon heeds are a file
//! descriptor in the loop.

#![expect(unsafe_code, reason = "dispositions of signals")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::errno::Errno;

/// The signals that the daemon heeds.
fn heeded() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1].into_iter().collect()
}

/// Undoes what the starter has made of signals, and blocks those that the daemon heeds: one that comes
/// before the loop waits for it. Writing into a pipe that nobody reads, or beyond the size that files may
/// have, is from now on an error and not the end.
///
/// To be called first of all.
pub fn begin() {
    reset();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: nothing handles a signal yet.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // It fails for no set that there is.
    let _ = heeded().thread_set_mask();
}

/// Has every signal do what it does by default. Not the mask, which a signal may be waiting behind.
pub(super) fn reset() {
    // Beyond these are those of real time, which mean nothing here.
    for signal in 1..32 {
        // SAFETY: no handler is installed, and where there was one, it is not called any more. For two
        // signals that cannot be changed it fails.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets all signals do what they do to other programs.
pub fn unblock() {
    let _ = SigSet::empty().thread_set_mask();
}

/// The signals that the daemon heeds, blocked and read from a signalfd.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks them, as [`begin`] has done.
    ///
    /// # Errors
    /// The errno of `signalfd`, if the process has no descriptor left.
    pub fn block() -> Result<Self, Errno> {
        Self::of(heeded())
    }

    /// Blocks these.
    ///
    /// # Errors
    /// As [`Signals::block`].
    pub(super) fn of(mask: SigSet) -> Result<Self, Errno> {
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next signal that has come, by its number.
    pub fn next(&self) -> Option<i32> {
        let info = self.0.read_signal().ok()??;
        i32::try_from(info.ssi_signo).ok()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
