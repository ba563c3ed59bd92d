//! This process's standard streams and descriptors, and which other processes it sees.

#![expect(unsafe_code, reason = "close by number, and an ioctl that nix lacks")]

use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::process;

use nix::libc;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::errno::Errno;
pub use crate::sys::stderr::print_error;

/// Below this number, all descriptors are closed where `/proc` is missing.
const MAX_WITHOUT_PROC: RawFd = 65_536;

/// The initial PID namespace (`include/linux/proc_ns.h`).
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// Returns whether this process sees all processes of the machine.
pub(crate) fn sees_all() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|here| here == Path::new(INITIAL_PIDS))
}

/// Prints to standard output. An error ends the process with this exit code, unless the reader is gone.
pub fn print(text: &str, failure: u8) {
    let printed = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if let Err(error) = printed
        && error.kind() != ErrorKind::BrokenPipe
    {
        print_error(&format!("standard output: {}", Errno::from(error)));
        process::exit(failure.into());
    }
}

/// Returns the number of columns of standard output, by `COLUMNS` or from its terminal.
pub fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or(Some(size.ws_col.into())).filter(|columns| *columns > 0)
}

/// Redirects the standard streams to `/dev/null`. The error is one line.
pub(crate) fn drop_standard_streams() -> Result<(), String> {
    let null = open_null()?;
    let redirected =
        dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
    redirected.map_err(in_null)
}

/// Opens `/dev/null`. The error is one line.
pub(crate) fn open_null() -> Result<File, String> {
    File::options().read(true).write(true).open("/dev/null").map_err(in_null)
}

fn in_null(error: impl Into<Errno>) -> String {
    format!("/dev/null: {}", error.into())
}

/// Closes every descriptor except the standard streams and `kept`. The starter may have passed others, such as a pipe
/// whose end it waits for. Must be called before any other file is opened, or in a process just forked.
pub fn close_all_but(kept: Option<RawFd>) {
    let number = |entry: DirEntry| entry.file_name().to_str()?.parse().ok();
    let open = fs::read_dir("/proc/self/fd");
    let open = open.map(|open| open.flatten().filter_map(number).collect::<Vec<RawFd>>());
    let open = open.unwrap_or_else(|_| (0..MAX_WITHOUT_PROC).collect());
    for fd in open.into_iter().filter(|fd| *fd > 2 && Some(*fd) != kept) {
        // SAFETY: no code of this process uses the descriptor.
        unsafe { libc::close(fd) };
    }
}
