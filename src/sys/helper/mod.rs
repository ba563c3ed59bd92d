//! Helper processes, which keep the privileges that it takes to run programs: one runs conntrackd's commands,
//! another the hook, so that neither waits for the other nor has its rights.
//!
//! They are forked before the daemon opens anything and before it drops its privileges, and run nothing but
//! what was configured then. The daemon itself starts no process, so its seccomp filter need not allow that. If
//! a helper is killed, the daemon ends: whoever supervises it starts both anew.

#![expect(unsafe_code, reason = "fork")]

mod conntrackd;
mod hook;
mod process;

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
use nix::unistd::{ForkResult, Pid, fork, setpgid};
use serde::{Deserialize, Serialize};

use crate::errno::Errno;
use crate::sys::process::close_all_but;
use crate::wire::helper::{CommandResult, Report, Request};
pub use conntrackd::Conntrackd;
pub use hook::Hook;
use process::HelperProcess;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub trait Runnable {
    fn process_name(&self) -> &'static std::ffi::CStr;

    /// Drops the privileges that running it does not take. Called once in the helper process. The daemon does not start
    /// after an error.
    fn prepare(&self) -> Result<(), Errno>;

    /// The program to run for a request, but for its output and its session, or why it is not run.
    fn command(&mut self, request: Request) -> Result<Command, CommandResult>;

    /// It is killed when it has run for so long.
    fn timeout(&self) -> Duration;
}

/// The daemon's end of the channel to a helper process.
#[derive(Debug)]
pub struct Helper {
    channel: OwnedFd,
    is_busy: bool,
}

impl Helper {
    /// Forks the process, and waits until it is prepared.
    pub fn fork(runnable: &mut dyn Runnable) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        // SAFETY: the process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            serve(&theirs, runnable);
            // SAFETY: ends this process, and runs nothing of what it has inherited.
            unsafe { libc::_exit(0) }
        }
        drop(theirs);
        // Whenever it ends, it is reaped by the kernel.
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        receive::<Result<(), Errno>>(&channel, &mut [0; 8], MsgFlags::empty())??;
        Ok(Self { channel, is_busy: false })
    }

    /// Asks for a run, when no other is under way. If the process has gone, [`Self::receive`] says so.
    pub fn run(&mut self, request: Request) {
        self.is_busy = send(&self.channel, &request, &mut [0; 8]).is_ok();
    }

    /// Receives the report of the run under way, if it has ended. After an error the process has gone.
    pub fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Result<Option<Report<'a>>, Errno> {
        match receive(&self.channel, buffer, MsgFlags::MSG_DONTWAIT) {
            Err(NixErrno::EAGAIN) => Ok(None),
            received => {
                self.is_busy = false;
                Ok(received.map(Some)?)
            }
        }
    }

    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    pub fn fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

/// Sends one datagram, which is encoded in the buffer.
fn send(channel: &OwnedFd, message: &impl Serialize, buffer: &mut [u8]) -> Result<(), Errno> {
    let datagram = postcard::to_slice(message, buffer).map_err(|_| NixErrno::EMSGSIZE)?;
    socket::send(channel.as_raw_fd(), datagram, MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}

/// Receives one datagram. `EPIPE`: the other process has gone.
fn receive<'a, T: Deserialize<'a>>(
    channel: &OwnedFd,
    buffer: &'a mut [u8],
    flags: MsgFlags,
) -> nix::Result<T> {
    let length = recv(channel.as_raw_fd(), buffer, flags)?;
    // The end of the channel is an empty datagram.
    postcard::from_bytes(buffer.get(..length).unwrap_or_default()).map_err(|_| NixErrno::EPIPE)
}

/// In the new process: reports whether it is prepared, as an errno, and serves until the daemon has gone.
fn serve(channel: &OwnedFd, runnable: &mut dyn Runnable) {
    close_all_but(channel.as_fd());
    // What is sent to the daemon's group, as by a terminal, is not for what the hook has left in the background.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // Others look for the daemon by its name.
    let _ = prctl::set_name(runnable.process_name());
    let process = runnable.prepare().and_then(|()| {
        // The user that it has become must not trace it.
        prctl::set_dumpable(false)?;
        HelperProcess::new(channel, runnable)
    });
    let _ = send(channel, &process.as_ref().map(drop), &mut [0; 8]);
    if let Ok(process) = process {
        process.serve();
    }
}
