//! Helper processes, which retain the privileges to run programs: one runs conntrackd's commands, another the hook. So
//! neither waits for the other, nor has its rights.
//!
//! They are forked before the daemon opens anything or drops privileges, and run only what was configured then. The
//! daemon itself starts no process, so its seccomp filter need not allow that. If a helper is killed, the daemon exits,
//! for its supervisor to restart both.

#![expect(unsafe_code, reason = "fork")]

mod conntrackd;
mod hook;
mod process;

use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl;
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, setsockopt, shutdown,
    socketpair,
};
use nix::unistd::{ForkResult, Pid, fork, setpgid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::errno::Errno;
use crate::start::process::close_all_but;
use crate::wire::helper::{CommandResult, MAX_REPORT, RunReport};
pub(crate) use conntrackd::COMMAND_TIMEOUT;
pub use conntrackd::{Conntrackd, open_configuration};
pub use hook::{Hook, HookCommand};
use process::{HelperProcess, KILL_GRACE};

/// The step of a helper's start that failed, and its error. The step has no name if the program is at fault.
type FailedStep<'a> = (&'a str, Errno);

/// Room for a failure, in bytes.
const MAX_FAILURE: usize = 64;

/// The `PATH` of the programs.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long an exiting daemon waits for the end of a run, in milliseconds: longer than the helper itself waits. The hook's
/// user can stop the helper, so it must be less than a second.
const END_LIMIT: u16 = 800;
const _: () = assert!(END_LIMIT as u128 > KILL_GRACE.as_millis());

/// A program that a helper process runs.
pub trait Runnable {
    /// A request to run it.
    type Request: Serialize + DeserializeOwned;

    /// The name of the helper process.
    const PROCESS: &'static CStr;

    /// The time in which it serves [`HOOK_RUNS`](crate::wire::helper::HOOK_RUNS) requests at most.
    const PERIOD: Duration;

    /// Drops the privileges that a run does not need, once. After an error the daemon does not start.
    fn prepare(&self) -> Result<(), FailedStep<'static>>;

    /// Returns how long a program of a request may take.
    fn limit(request: &Self::Request) -> Duration;

    /// Builds the next command of a request, after the end of the last; the caller sets its output and session. An
    /// error is the result without a run.
    fn next(
        &mut self,
        request: &Self::Request,
        last: Option<CommandResult>,
    ) -> Option<Result<Command, CommandResult>>;
}

/// The daemon's end of the channel to a helper process, which takes requests of one type.
#[derive(Debug)]
pub struct Helper<Request> {
    channel: OwnedFd,
    /// A run is under way.
    pub is_busy: bool,
    requests: PhantomData<Request>,
}

impl<Request: Serialize> Helper<Request> {
    /// Forks a process, and waits until it is prepared. The error has the name of the step that failed: see
    /// [`FailedStep`].
    pub fn fork(runnable: &mut impl Runnable<Request = Request>) -> Result<Self, (String, Errno)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(in_step("socketpair"))
            .map_err(owned)?;
        // The system's default may have no room for a report (`net.core.wmem_default`). If its limit has none: see `report`.
        let _ = setsockopt(&theirs, SndBuf, &MAX_REPORT);
        // SAFETY: the process has one thread.
        let forked = unsafe { fork() }.map_err(in_step("fork")).map_err(owned)?;
        if let ForkResult::Child = forked {
            serve(theirs, runnable);
            // SAFETY: ends this process without running any inherited code.
            unsafe { libc::_exit(0) }
        }
        drop(theirs);
        let mut buffer = [0; MAX_FAILURE];
        let prepared =
            receive::<Result<(), FailedStep<'_>>>(&channel, &mut buffer, MsgFlags::empty());
        prepared.map_err(in_step("channel")).flatten().map_err(owned)?;
        Ok(Self { channel, is_busy: false, requests: PhantomData })
    }

    /// Requests a run while no other is under way. [`Self::receive`] reports its end, and that the process is gone.
    pub fn run(&mut self, request: &Request) -> Result<(), Errno> {
        let sent = send(&self.channel, request, &mut [0; 8]);
        self.is_busy = sent.is_ok();
        match sent {
            Err(NixErrno::EPIPE) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

impl<Request> Helper<Request> {
    /// Receives the report of the run under way, if it has ended. An error other than a temporary one: the process has
    /// exited.
    pub fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<nix::Result<RunReport<'a>>> {
        let received = receive(&self.channel, buffer, MsgFlags::MSG_DONTWAIT);
        if matches!(received, Err(NixErrno::EAGAIN)) {
            return None;
        }
        self.is_busy &= received.as_ref().is_err_and(|errno| is_temporary(*errno));
        Some(received)
    }

    pub fn fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

impl<Request> Drop for Helper<Request> {
    /// Makes the process kill its program, and waits until it closes its end of the channel.
    fn drop(&mut self) {
        if socket::send(self.fd(), &[], MsgFlags::MSG_NOSIGNAL).is_err() {
            return;
        }
        let receive = || {
            poll(&mut [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)], END_LIMIT)?;
            recv(self.fd(), &mut [0; 8], MsgFlags::MSG_DONTWAIT)
        };
        while matches!(receive(), Ok(1..)) {}
    }
}

fn owned((step, errno): FailedStep<'_>) -> (String, Errno) {
    (step.into(), errno)
}

fn in_step<E: Into<Errno>>(step: &'static str) -> impl FnOnce(E) -> FailedStep<'static> {
    move |error| (step, error.into())
}

/// Returns whether a call on the channel may succeed at once: see [`Errno::is_temporary`].
pub(crate) fn is_temporary(errno: NixErrno) -> bool {
    Errno::from(errno).is_temporary()
}

/// Sends one datagram, which is encoded in the buffer.
fn send(channel: &OwnedFd, message: &impl Serialize, buffer: &mut [u8]) -> nix::Result<()> {
    let datagram = postcard::to_slice(message, buffer).map_err(|_| NixErrno::EMSGSIZE)?;
    socket::send(channel.as_raw_fd(), datagram, MsgFlags::MSG_NOSIGNAL).map(drop)
}

/// Sends the daemon a report, as it waits for that. If that cannot be sent, or the daemon has exited, ends the channel: to
/// each process the other one is gone then.
fn report(channel: &OwnedFd, message: &impl Serialize, buffer: &mut [u8]) {
    let mut sent = send(channel, message, buffer);
    while sent.is_err_and(is_temporary) {
        sleep(Duration::from_millis(10));
        sent = send(channel, message, buffer);
    }
    if sent.is_err() {
        // Of a connected socket, this never fails.
        let _ = shutdown(channel.as_raw_fd(), Shutdown::Both);
    }
}

/// Receives one datagram. `EPIPE`: the other process has exited.
fn receive<'a, T: Deserialize<'a>>(
    channel: &OwnedFd,
    buffer: &'a mut [u8],
    flags: MsgFlags,
) -> nix::Result<T> {
    let length = recv(channel.as_raw_fd(), buffer, flags)?;
    // The end of the channel is an empty datagram.
    postcard::from_bytes(buffer.get(..length).unwrap_or_default()).map_err(|_| NixErrno::EPIPE)
}

/// Runs in the new process: reports whether it is prepared, and serves requests until the daemon exits.
fn serve<R: Runnable>(channel: OwnedFd, runnable: &mut R) {
    close_all_but(Some(channel.as_raw_fd()));
    // Signals to the daemon's group, as from a terminal, must not end the hook's background processes. Of a process that
    // leads no session, this never fails.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // Scripts look for the daemon by its process name. This never fails.
    let _ = prctl::set_name(R::PROCESS);
    let prepared = runnable.prepare().and_then(|()| {
        // Other processes of its user must not trace it.
        prctl::set_dumpable(false).map_err(in_step("becoming undumpable"))?;
        // From here on the hook's user owns new pipes. So the hook can open its output as /dev/stdout, too.
        HelperProcess::new(channel.try_clone().map_err(in_step("dup"))?)
    });
    report(&channel, &prepared.as_ref().map(drop), &mut [0; MAX_FAILURE]);
    drop(channel);
    if let Ok(process) = prepared {
        process.serve(runnable);
    }
}
