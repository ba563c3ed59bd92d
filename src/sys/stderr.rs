//! Writes to standard error without ever blocking: it may be a stopped terminal, or a pipe or socket that nobody
//! reads.

#![expect(unsafe_code, reason = "signal")]

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::Mode;
use nix::unistd::write;

/// Standard error as [`prepare`] has found it. Before that nothing is written.
static STDERR: OnceLock<Stderr> = OnceLock::new();

#[derive(Debug)]
enum Stderr {
    /// Opened anew with `O_NONBLOCK`, which cannot be set on standard error itself, as others share it. A terminal
    /// that cannot be opened is written to no more: it may take a byte and then block.
    Terminal(Option<OwnedFd>),
    /// A file, a pipe or a socket. A pipe that takes anything takes 4096 bytes, more than is ever written at once.
    Other,
}

/// Finds out how to write.
pub fn prepare() {
    let kind = if io::stderr().is_terminal() {
        // A background process is not to be stopped for writing to its terminal.
        // SAFETY: no handler is installed.
        let _ = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) };
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let reopen = |path| open(path, flags, Mode::empty()).ok();
        // After su the terminal belongs to another user, but can be opened by its other name.
        Stderr::Terminal(reopen("/proc/self/fd/2").or_else(|| reopen("/dev/tty")))
    } else {
        Stderr::Other
    };
    let _ = STDERR.set(kind);
}

/// Writes complete lines, or drops them if that would block.
pub fn write_stderr(lines: &[u8]) {
    let stderr = io::stderr();
    match STDERR.get() {
        Some(Stderr::Terminal(Some(terminal))) => {
            let _ = write(terminal, lines);
        }
        Some(Stderr::Other) => {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            if send(stderr.as_raw_fd(), lines, flags) != Err(NixErrno::ENOTSOCK) {
                return;
            }
            let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
            if poll(&mut fds, PollTimeout::ZERO) == Ok(1) {
                let _ = write(&stderr, lines);
            }
        }
        Some(Stderr::Terminal(None)) | None => {}
    }
}
