//! Signals as a file descriptor in the loop.

use std::os::fd::{AsRawFd, RawFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::errno::Errno;

/// The signals that the daemon heeds, blocked and read from a signalfd.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks them. SIGPIPE is ignored from the start.
    ///
    /// # Errors
    /// The errno of `signalfd`, if the process has no descriptor left.
    pub fn block() -> Result<Self, Errno> {
        let mask: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1]
            .into_iter()
            .collect();
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
