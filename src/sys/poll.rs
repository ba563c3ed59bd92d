//! What mio has no words for.

#![expect(unsafe_code, reason = "mio registers for edges only")]

use std::os::fd::{AsRawFd, RawFd};

use mio::{Poll, Token};
use nix::errno::Errno as Known;
use nix::libc;

use crate::errno::Errno;

/// Has the poll report `fd` for as long as it has something to read (`epoll(7)`, level-triggered), and
/// not once for all that has come, as mio has it. So nobody has to read on until there is no more.
///
/// mio keeps the token in the event's data as it is, whoever puts it there.
///
/// # Errors
/// The errno of `epoll_ctl`.
pub fn register_level_triggered(poll: &Poll, fd: RawFd, token: Token) -> Result<(), Errno> {
    let Token(data) = token;
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: data as u64 };
    // SAFETY: the kernel reads the event.
    let result =
        unsafe { libc::epoll_ctl(poll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    Known::result(result)?;
    Ok(())
}
