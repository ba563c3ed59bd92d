//! A process of its own that keeps the privileges conntrackd's control socket wants, and runs nothing
//! but conntrackd's sync commands.
//!
//! It is forked before the daemon opens anything and before it drops its privileges. The daemon itself
//! starts no process, so its seccomp filter need not allow that.

#![expect(unsafe_code, reason = "fork")]

mod jail;
mod program;
mod supervisor;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::{ForkResult, fork};

use super::privileges::RunAs;
use crate::errno::Errno;
use crate::wire::helper::{
    CommandResult, MAX_LINE, Message, SyncCommand, decode_message, encode_request,
};
use supervisor::Helper;

/// Room for what comes from it.
pub type Buffer = [u8; MAX_LINE + 1];

/// The daemon's end of it.
#[derive(Debug)]
pub struct Conntrackd {
    channel: OwnedFd,
    /// Of the last command that was asked for.
    number: u8,
}

/// What came from it.
#[derive(Debug, PartialEq, Eq)]
pub enum HelperEvent<'a> {
    /// The command has printed a line, or a piece of it.
    Printed(&'a [u8]),
    /// The command has ended, and of its output so many bytes were thrown away.
    Ended(CommandResult, u32),
    /// The process was killed and begun anew, and with it the command, if one was under way.
    Restarted(Option<CommandResult>),
    /// It is of no more use.
    Gone,
}

impl Conntrackd {
    /// Forks the process, which runs `PROGRAM -C CONF_DIR/conntrackd.conf FLAG`, the configuration being
    /// `user`'s, if the daemon is to become that.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn fork(program: &Path, conf_dir: &Path, user: RunAs) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let helper = Helper::new(theirs, program, conf_dir, user)?;
        // SAFETY: the process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            let served = helper.serve();
            // SAFETY: ends this process, and runs nothing of what it has inherited.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        // Whenever it ends, nobody has to wait for it.
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        Ok(Self { channel, number: 0 })
    }

    /// Asks for a command, when no other is under way.
    ///
    /// # Errors
    /// The errno of `send`, if the process has gone.
    pub fn run(&mut self, command: SyncCommand) -> Result<(), Errno> {
        self.number = self.number.wrapping_add(1);
        send(
            self.channel.as_raw_fd(),
            &encode_request(command, self.number),
            MsgFlags::MSG_NOSIGNAL,
        )?;
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
