//! The process itself: its standard streams, its descriptors, its name.

#![expect(unsafe_code, reason = "descriptors are closed by their numbers, and a terminal is asked")]

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::process;

use nix::libc;

use super::service_manager::stderr_is_journal;
use crate::errno::Errno;

/// Prints to standard output. A reader that has gone away is no failure of ours; any other ends the process with exit
/// code 1.
pub fn print(text: &str) {
    let printed = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if let Err(error) = printed
        && error.kind() != ErrorKind::BrokenPipe
    {
        print_error(&format!("standard output: {}", Errno::from(error)));
        process::exit(1);
    }
}

/// Prints an error to standard error.
pub fn print_error(error: &str) {
    let level = if stderr_is_journal() { "<3>" } else { "" };
    let _ = writeln!(io::stderr(), "{level}keepwatch: {error}");
}

/// How many columns standard output has, if it is a terminal or `COLUMNS` says so.
pub fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or(Some(size.ws_col.into())).filter(|columns| *columns > 0)
}

/// Closes every descriptor but the standard streams. Whoever starts the daemon may have left some open, and
/// would wait for the end of a pipe as long as the daemon holds it.
///
/// To be called before anything else is opened.
pub fn close_inherited() {
    close(3, RawFd::MAX);
}

/// In a process just forked: closes every descriptor but the standard streams and this one.
pub(super) fn close_all_but(fd: BorrowedFd<'_>) {
    close(3, fd.as_raw_fd() - 1);
    close(fd.as_raw_fd() + 1, RawFd::MAX);
}

/// Closes these descriptors, if there are any, which nothing in this process is to use any more.
fn close(first: RawFd, last: RawFd) {
    // SAFETY: they are used no more.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
        // Before Linux 5.9, or there are none.
        for fd in first..=last.min(1023) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
