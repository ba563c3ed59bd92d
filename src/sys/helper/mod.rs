//! Processes of their own that keep what privileges it takes to run programs, and run nothing but those that
//! were named at the start: one conntrackd's sync commands, another the hook, so that neither waits for the
//! other nor has its rights.
//!
//! They are forked before the daemon opens anything and before it drops its privileges. The daemon itself
//! starts no process, so its seccomp filter need not allow that.

#![expect(unsafe_code, reason = "fork")]

mod hook;
mod jail;
mod program;
mod supervisor;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::{ForkResult, fork};

use crate::errno::Errno;
use crate::wire::helper::{
    CommandResult, MAX_LINE, Message, Request, decode_message, encode_request,
};
pub use hook::Hook;
pub use jail::Jail;
use supervisor::Server;

/// Room for what comes from it.
pub type Buffer = [u8; MAX_LINE + 1];

/// What a helper may be asked to run.
#[derive(Debug)]
pub enum Programs {
    /// conntrackd's commands, shut in if need be.
    Sync(Jail),
    /// The hook.
    Hook(Hook),
}

/// The daemon's end of it.
#[derive(Debug)]
pub struct Helper {
    channel: OwnedFd,
    /// Of the last run that was asked for.
    number: u8,
}

/// What came from it.
#[derive(Debug, PartialEq, Eq)]
pub enum HelperEvent<'a> {
    /// The program has printed a line, or a piece of it.
    Printed(&'a [u8]),
    /// The program has ended, and of its output so many bytes were thrown away.
    Ended(CommandResult, u32),
    /// The process was killed and begun anew, and with it the program, if one was under way.
    Restarted(Option<CommandResult>),
    /// It is of no more use.
    Gone,
}

impl Helper {
    /// Forks the process.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn fork(programs: Programs) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let server = Server::new(theirs, programs)?;
        // SAFETY: the process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            let result = server.serve();
            // SAFETY: ends this process, and runs nothing of what it has inherited.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        // Whenever it ends, nobody has to wait for it.
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        drop(server);
        // How its start went.
        let mut errno = [0];
        match recv(channel.as_raw_fd(), &mut errno, MsgFlags::empty())? {
            0 => Err(NixErrno::ECHILD.into()),
            _ if errno == [0] => Ok(Self { channel, number: 0 }),
            _ => Err(Errno(errno[0].into())),
        }
    }

    /// Asks for a run, when no other is under way.
    ///
    /// # Errors
    /// The errno of `send`, if the process has gone.
    pub fn run(&mut self, request: Request) -> Result<(), Errno> {
        self.number = self.number.wrapping_add(1);
        let request = encode_request(request, self.number);
        send(self.channel.as_raw_fd(), &request, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// What has come from it. None: nothing yet.
    pub fn answer<'a>(&self, buffer: &'a mut Buffer) -> Option<HelperEvent<'a>> {
        loop {
            let received = recv(self.channel.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT);
            let length = match received {
                Err(NixErrno::EAGAIN) => return None,
                // The end of the channel is an empty message.
                received => received.unwrap_or(0),
            };
            return Some(match buffer.get(..length).and_then(decode_message) {
                // The answer to what was given up already, as the process was killed.
                Some(Message::Ended { number, .. }) if number != self.number => continue,
                Some(Message::Ended { end, dropped, .. }) => HelperEvent::Ended(end, dropped),
                Some(Message::Restarted(number)) => {
                    let under_way = number == Some(self.number);
                    HelperEvent::Restarted(under_way.then_some(CommandResult::Aborted))
                }
                Some(Message::Printed(_)) => HelperEvent::Printed(buffer.get(1..length)?),
                None => HelperEvent::Gone,
            });
        }
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::helper::encode_message;

    #[test]
    fn what_is_answered_to_a_request_given_up_is_passed_over() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let helper = Helper { channel, number: 2 };
        let tell = |message| {
            send(theirs.as_raw_fd(), &encode_message(&message), MsgFlags::empty()).unwrap();
        };
        let end = CommandResult::Exited(0);
        let mut buffer = [0; MAX_LINE + 1];
        tell(Message::Ended { number: 1, end, dropped: 3 });
        assert_eq!(helper.answer(&mut buffer), None);
        tell(Message::Restarted(Some(1)));
        assert_eq!(helper.answer(&mut buffer), Some(HelperEvent::Restarted(None)));
        tell(Message::Ended { number: 1, end, dropped: 3 });
        tell(Message::Ended { number: 2, end, dropped: 4 });
        assert_eq!(helper.answer(&mut buffer), Some(HelperEvent::Ended(end, 4)));
        drop(theirs);
        assert_eq!(helper.answer(&mut buffer), Some(HelperEvent::Gone));
    }
}
