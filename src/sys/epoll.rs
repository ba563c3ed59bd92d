//! Registrations that mio does not offer: level-triggered, one-shot, errors only.

#![expect(unsafe_code, reason = "epoll_ctl")]

use std::os::fd::{AsRawFd, RawFd};

use mio::{Poll, Token};
use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int};

use crate::errno::Errno;

/// Has the poll report `fd` for as long as it is readable (level-triggered, `epoll(7)`), so that it need not be
/// drained after each report.
///
/// mio reads the token from the event's data.
///
/// # Errors
/// The errno of `epoll_ctl`.
pub fn register_level_triggered(poll: &Poll, fd: RawFd, token: Token) -> Result<(), Errno> {
    control(poll, libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)
}

/// Has the poll report the next exceptional condition of `fd` once. To rearm it, call this with `again`.
///
/// # Errors
/// As [`register_level_triggered`].
pub fn register_once(poll: &Poll, fd: RawFd, token: Token, again: bool) -> Result<(), Errno> {
    let operation = if again { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
    control(poll, operation, fd, token, libc::EPOLLPRI | libc::EPOLLONESHOT)
}

/// Changes what the poll reports of a registered descriptor: readability and errors, or errors only. What is
/// ready already is reported once more.
///
/// # Errors
/// The errno of `epoll_ctl`.
pub fn reregister(poll: &Poll, fd: RawFd, token: Token, readable: bool) -> Result<(), Errno> {
    let readable = if readable { libc::EPOLLIN } else { 0 };
    control(poll, libc::EPOLL_CTL_MOD, fd, token, libc::EPOLLET | readable)
}

fn control(
    poll: &Poll,
    operation: c_int,
    fd: RawFd,
    token: Token,
    events: c_int,
) -> Result<(), Errno> {
    let Token(data) = token;
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: data as u64 };
    // SAFETY: the kernel reads the event.
    let result = unsafe { libc::epoll_ctl(poll.as_raw_fd(), operation, fd, &raw mut event) };
    NixErrno::result(result)?;
    Ok(())
}
