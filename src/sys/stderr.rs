//! Writes to standard error without ever blocking: it may be a stopped terminal, or a pipe or socket that nobody
//! reads.

#![expect(unsafe_code, reason = "signal and tcgetsid")]

use core::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::Mode;
use nix::unistd::{isatty, write};

use super::file_id::identify_open;

/// How to write without blocking. `O_NONBLOCK` cannot be set on standard error itself, as the process that
/// started the daemon shares the open file.
#[derive(Debug)]
enum Stderr {
    /// A terminal or pipe, reopened with `O_NONBLOCK`.
    Opened(OwnedFd),
    /// A socket, for which each message can have `MSG_DONTWAIT`.
    Socket,
    /// A pipe that cannot be reopened. If it is writable at all, it takes as much as is ever written.
    Pipe,
    /// A file or device that does not block.
    File,
    /// Not known yet, or a terminal that cannot be reopened, which may take a byte and then block.
    Nothing,
}

static STDERR: Mutex<Stderr> = Mutex::new(Stderr::Nothing);

/// Finds out how to write. Before this nothing is written.
pub fn prepare() {
    let stderr = std::io::stderr();
    let kind = match identify_open(&stderr).map(|file| file.kind()) {
        Ok(libc::S_IFSOCK) => Stderr::Socket,
        Ok(libc::S_IFIFO) => reopen(c"/proc/self/fd/2").unwrap_or(Stderr::Pipe),
        _ if isatty(&stderr) == Ok(true) => open_terminal(),
        _ => Stderr::File,
    };
    if let Ok(mut stderr) = STDERR.try_lock() {
        *stderr = kind;
    }
}

fn reopen(path: &CStr) -> Option<Stderr> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).ok().map(Stderr::Opened)
}

fn open_terminal() -> Stderr {
    // A background process is not to be stopped for writing to its terminal.
    // SAFETY: nothing handles the signal.
    let _ = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) };
    // SAFETY: a system call without pointers.
    let is_own = || unsafe { libc::tcgetsid(libc::STDERR_FILENO) } >= 0;
    // After su, the terminal belongs to another user, but the controlling one can be opened as /dev/tty.
    reopen(c"/proc/self/fd/2")
        .or_else(|| is_own().then(|| reopen(c"/dev/tty"))?)
        .unwrap_or(Stderr::Nothing)
}

/// Writes complete lines, or drops them if that would block.
pub fn write_stderr(lines: &[u8]) {
    let stderr = std::io::stderr();
    // Locked only if a seccomp violation is reported while a line is written.
    let Ok(kind) = STDERR.try_lock() else { return };
    match &*kind {
        Stderr::Opened(file) => {
            let _ = write(file, lines);
        }
        Stderr::Socket => {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(stderr.as_raw_fd(), lines, flags);
        }
        Stderr::Pipe => {
            let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
            let polled = poll(&mut fds, PollTimeout::ZERO);
            let takes = |events: PollFlags| events.contains(PollFlags::POLLOUT);
            if polled.is_ok() && fds[0].revents().is_some_and(takes) {
                let _ = write(&stderr, lines);
            }
        }
        Stderr::File => {
            let _ = write(&stderr, lines);
        }
        Stderr::Nothing => {}
    }
}
