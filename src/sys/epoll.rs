//! What mio has no words for.

#![expect(
    unsafe_code,
    reason = "mio registers for edges only, again and again, and for at least one"
)]

use std::os::fd::{AsRawFd, RawFd};

use mio::{Poll, Token};
use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int};

use crate::errno::Errno;

/// Has the poll report `fd` for as long as it has something to read (`epoll(7)`, level-triggered), and
/// not once for all that has come, as mio has it. So nobody has to read on until there is no more.
///
/// mio keeps the token in the event's data as it is, whoever puts it there.
///
/// # Errors
/// The errno of `epoll_ctl`.
pub fn register_level_triggered(poll: &Poll, fd: RawFd, token: Token) -> Result<(), Errno> {
    control(poll, libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)
}

/// Has the poll report the next exceptional condition of `fd`, and then nothing until it is `again` told
/// to. However often there is one, that wakes nobody meanwhile.
///
/// # Errors
/// As [`register_level_triggered`].
pub fn register_once(poll: &Poll, fd: RawFd, token: Token, again: bool) -> Result<(), Errno> {
    let operation = if again { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
    control(poll, operation, fd, token, libc::EPOLLPRI | libc::EPOLLONESHOT)
}

/// Has the poll report that there is something to read from a descriptor, which it knows already, or report
/// errors only, which mio cannot have for nothing. What is ready already is reported once more.
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
