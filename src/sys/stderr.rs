//! Standard error, for whose reader nobody waits: it may be a terminal that is frozen, or a pipe or socket
//! that nobody reads.

#![expect(unsafe_code, reason = "signal, and a question about the terminal")]

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

/// How to write to it without waiting. The flag `O_NONBLOCK` belongs to an opening of a file, and that of
/// standard error is shared with whoever started us.
#[derive(Debug)]
enum Stderr {
    /// A terminal or a pipe, opened anew with that flag.
    Opened(OwnedFd),
    /// A socket, which can be told with each message.
    Socket,
    /// A pipe that cannot be opened anew. If it takes anything, it takes as much as we ever write.
    Pipe,
    /// A file or device that makes nobody wait.
    File,
    /// Not known yet, or a terminal that cannot be opened anew. It may take a single byte and wait for room for the next.
    Nothing,
}

static STDERR: Mutex<Stderr> = Mutex::new(Stderr::Nothing);

/// Finds out how to write to it. Until then nothing is written.
pub fn prepare() {
    let stderr = std::io::stderr();
    let kind = match identify_open(&stderr).map(|file| file.kind()) {
        Ok(libc::S_IFSOCK) => Stderr::Socket,
        Ok(libc::S_IFIFO) => open_anew(c"/proc/self/fd/2").unwrap_or(Stderr::Pipe),
        _ if isatty(&stderr) == Ok(true) => open_terminal(),
        _ => Stderr::File,
    };
    if let Ok(mut stderr) = STDERR.try_lock() {
        *stderr = kind;
    }
}

fn open_anew(path: &CStr) -> Option<Stderr> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).ok().map(Stderr::Opened)
}

fn open_terminal() -> Stderr {
    // Who writes to it from the background is not to be stopped for that.
    // SAFETY: nothing handles the signal.
    let _ = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) };
    // SAFETY: a system call without pointers.
    let is_own = || unsafe { libc::tcgetsid(libc::STDERR_FILENO) } >= 0;
    // After su, the terminal still belongs to whom one was before; but everybody may open his own.
    open_anew(c"/proc/self/fd/2")
        .or_else(|| is_own().then(|| open_anew(c"/dev/tty"))?)
        .unwrap_or(Stderr::Nothing)
}

/// Writes complete lines, if they are taken at once.
pub fn write_stderr(lines: &[u8]) {
    let stderr = std::io::stderr();
    // Locked it is only if this is about a line within a line.
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
