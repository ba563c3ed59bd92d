//! The process itself: what it starts with, its standard streams, its descriptors, its name.

#![expect(unsafe_code, reason = "fork, and what the C library gives")]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, write};

use super::file_id::identify_open;
use super::service_manager::stderr_is_journal;
use super::signals;
use crate::errno::Errno;

/// Does what Rust's own start would do: resets signals and ignores SIGPIPE, so that writes fail with EPIPE,
/// and opens standard streams that are closed, so that nothing else gets their numbers. Returns the arguments
/// behind the program's name.
///
/// # Errors
/// One line, if memory cannot be protected, or if a stream is closed and there is no `/dev/null` to put in
/// its place.
///
/// # Safety
/// To be called once, before anything else, with what the C library gave `main`.
pub unsafe fn init_runtime(
    count: c_int,
    words: *const *const c_char,
) -> Result<Vec<OsString>, String> {
    signals::init();
    #[cfg(target_env = "musl")]
    super::relro::protect().map_err(|errno| format!("read-only memory: {errno}"))?;
    for fd in 0..=2 {
        // SAFETY: if it is not open, the kernel says so.
        if identify_open(&unsafe { BorrowedFd::borrow_raw(fd) }) == Err(NixErrno::EBADF.into()) {
            // The lowest number that is free is the one it gets.
            let null = open(c"/dev/null", OFlag::O_RDWR, Mode::empty());
            let _ =
                null.map_err(|errno| format!("/dev/null: {}", Errno::from(errno)))?.into_raw_fd();
        }
    }
    let count = usize::try_from(count).unwrap_or_default();
    // SAFETY: the caller says that there are so many strings.
    let words = unsafe { core::slice::from_raw_parts(words, count) };
    // SAFETY: as above.
    unsafe { remember_command_line(words) };
    // SAFETY: as above.
    let copy = |word: &*const c_char| unsafe { CStr::from_ptr(*word) };
    let words = words.iter().skip(1).map(copy);
    Ok(words.map(|word| OsStr::from_bytes(word.to_bytes()).into()).collect())
}

/// Prints to standard output. A reader that has gone away is no failure of ours.
pub fn print(text: &str) {
    // SAFETY: open since the start, and never closed.
    write_all(unsafe { BorrowedFd::borrow_raw(libc::STDOUT_FILENO) }, text);
}

/// Prints an error to standard error.
pub fn print_error(error: &str) {
    let level = if stderr_is_journal() { "<3>" } else { "" };
    write_all(std::io::stderr().as_fd(), &format!("{level}keepwatch: {error}\n"));
}

/// As far as it is taken.
pub(super) fn write_all(file: BorrowedFd<'_>, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match write(file, rest) {
            Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
            Err(NixErrno::EINTR) => {}
            _ => return,
        }
    }
}

/// Runs `work` in a child process, which is killed after so many seconds whatever it waits for, or when this
/// process ends. Returns its exit code, or `None` if it was killed.
///
/// # Errors
/// The errno of `fork(2)` or `waitpid(2)`.
pub fn run_limited(seconds: c_uint, work: impl FnOnce() -> c_int) -> Result<Option<c_int>, Errno> {
    // SAFETY: the process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            alarm::set(seconds);
            let code = work();
            // SAFETY: ends this process, and runs nothing of what the other has inherited.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            signals::unblock();
            match waitpid(child, None)? {
                WaitStatus::Exited(_, code) => Ok(Some(code)),
                _ => Ok(None),
            }
        }
    }
}

/// Closes every descriptor but the standard streams: whoever starts the daemon may have left some
/// open, and would wait for the end of a pipe as long as the daemon holds it.
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

/// Closes these, and whatever is between them, which nobody in this process is to use any more. None if the last
/// comes before the first.
fn close(first: RawFd, last: RawFd) {
    // SAFETY: they are used no more.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed != 0 {
        // Before Linux 5.9, or there are none.
        for fd in first..=last.min(1023) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// Calls this process something else, by its name and by its command line: others look for the daemon by
/// that.
pub(super) fn rename(name: &CStr) {
    let _ = prctl::set_name(name);
    let line = COMMAND_LINE.load(Ordering::Relaxed);
    // All but the last byte, which is the end of the last word.
    let length = COMMAND_LINE_LENGTH.load(Ordering::Relaxed).saturating_sub(1);
    let bytes = name.to_bytes().iter().copied().chain(core::iter::repeat(0));
    for (place, byte) in (0..length).zip(bytes) {
        // SAFETY: the memory that the kernel has put the words into, which is this process's own and is
        // nobody's string any more: they have been copied.
        unsafe { line.add(place).write(byte) };
    }
}

/// Where the kernel has put the command line, and how many bytes it has.
static COMMAND_LINE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static COMMAND_LINE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// These are the words that the kernel has put there.
unsafe fn remember_command_line(words: &[*const c_char]) {
    let Some(first) = words.first() else { return };
    let mut end = *first;
    for word in words {
        // One after another, as the kernel puts them.
        if *word == end {
            // SAFETY: it is a string, and the end of it is within or just behind what it is in.
            end = unsafe { word.add(CStr::from_ptr(*word).count_bytes() + 1) };
        }
    }
    COMMAND_LINE.store(first.cast::<u8>().cast_mut(), Ordering::Relaxed);
    COMMAND_LINE_LENGTH.store(end.addr() - first.addr(), Ordering::Relaxed);
}
