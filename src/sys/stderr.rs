//! Writes to standard error without blocking: it may be a stopped terminal, or a pipe or socket without a reader.

#![expect(unsafe_code, reason = "signal")]

use std::env;
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
use nix::sys::stat::fstat;
use nix::unistd::write;

/// A terminal opened anew with `O_NONBLOCK`, which cannot be set on standard error itself, as others share it.
static TERMINAL: OnceLock<File> = OnceLock::new();

/// Prepares nonblocking writes, once. Returns `false` if standard error is a terminal that cannot be opened.
pub fn prepare() -> bool {
    if !io::stderr().is_terminal() || TERMINAL.get().is_some() {
        return true;
    }
    // A write to the terminal must not stop a background process. Never fails for this signal.
    // SAFETY: installs no handler.
    let _ = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) };
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    // After su the terminal belongs to another user, but /dev/tty can be opened.
    let terminal = options.open("/proc/self/fd/2").or_else(|_| options.open("/dev/tty"));
    terminal.is_ok_and(|terminal| TERMINAL.set(terminal).is_ok())
}

/// Writes what has room. Returns the number of bytes: none after an error, as there is no other place to say so.
pub fn write_stderr(bytes: &[u8]) -> usize {
    if let Some(mut terminal) = TERMINAL.get() {
        return terminal.write(bytes).unwrap_or(0);
    }
    let stderr = io::stderr();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let sent = send(stderr.as_raw_fd(), bytes, flags);
    if sent != Err(NixErrno::ENOTSOCK) {
        return sent.unwrap_or(0);
    }
    // A pipe with any room has 4096 bytes, more than one call writes.
    let room = poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO);
    if room == Ok(1) { write(&stderr, bytes).unwrap_or(0) } else { 0 }
}

/// Prints an error on standard error, for the journal with its severity. If that fails, the exit code has to do.
pub fn print_error(error: &str) {
    let level = if is_journal() { "<3>" } else { "" };
    let _ = writeln!(io::stderr(), "{level}keepwatch: {error}");
}

/// Returns whether standard error is a stream to the journal (`JOURNAL_STREAM` of `systemd.exec(5)`).
pub fn is_journal() -> bool {
    let Ok(journal) = env::var("JOURNAL_STREAM") else { return false };
    let file = journal.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    fstat(io::stderr()).is_ok_and(|found| file == Some((Ok(found.st_dev), Ok(found.st_ino))))
}
