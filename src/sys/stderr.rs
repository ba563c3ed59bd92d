//! Writes to standard error without ever blocking: it may be a stopped terminal, or a pipe or socket that nobody
//! reads.

#![expect(unsafe_code, reason = "signal")]

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::write;

/// A terminal opened anew with `O_NONBLOCK`, which cannot be set on standard error itself, as others share it.
static TERMINAL: OnceLock<File> = OnceLock::new();

/// Finds out how to write. Returns whether that is possible at all: a terminal that cannot be opened may take a byte
/// and then block.
pub fn prepare() -> bool {
    if !io::stderr().is_terminal() {
        return true;
    }
    // A background process is not to be stopped for writing to its terminal.
    // SAFETY: no handler is installed.
    let _ = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) };
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    // After su the terminal belongs to another user, but can be opened by its other name.
    let terminal = options.open("/proc/self/fd/2").or_else(|_| options.open("/dev/tty"));
    terminal.is_ok_and(|terminal| TERMINAL.set(terminal).is_ok())
}

/// Writes complete lines, or drops them if that would block.
pub fn write_stderr(lines: &[u8]) {
    if let Some(mut terminal) = TERMINAL.get() {
        let _ = terminal.write(lines);
        return;
    }
    let stderr = io::stderr();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    if send(stderr.as_raw_fd(), lines, flags) != Err(NixErrno::ENOTSOCK) {
        return;
    }
    // A pipe that takes anything takes 4096 bytes, more than is ever written at once.
    if poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO) == Ok(1) {
        let _ = write(&stderr, lines);
    }
}
