//! The processes behind the channel: one runs the commands, the other restarts it. If either is killed, the
//! other takes both parts, so that only the end of both is the end.

#![expect(unsafe_code, reason = "fork and waitpid")]

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::SigSet;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::jail::Jail;
use super::program::{Program, Runner, Shared};
use crate::errno::Errno;
use crate::monitor::{Backoff, CommandResult, Duration, SyncCommand};
use crate::sys::privileges::{self, RunAs};
use crate::sys::{clock, process};
use crate::wire::helper::{Message, decode_request, encode_message};

/// A command that has not ended after this is killed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that ran this long did not fail for a reason that it started with.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// What both processes know.
pub(super) struct Helper {
    channel: OwnedFd,
    jail: Jail,
    shared: &'static Shared,
}

/// Why a process works no more.
enum End {
    /// The daemon has gone.
    Closed,
    /// The supervising process has been killed.
    Orphaned,
}

impl Helper {
    pub(super) fn new(
        channel: OwnedFd,
        program: &Path,
        conf_dir: &Path,
        user: RunAs,
    ) -> Result<Self, Errno> {
        Ok(Self { channel, jail: Jail::new(conf_dir, program, user)?, shared: Shared::new()? })
    }

    /// Serves until the daemon has gone.
    pub(super) fn serve(&self) -> nix::Result<()> {
        process::rename(c"keepwatch-sync");
        process::close_all_but(self.channel.as_fd());
        // Signals to the group are for the daemon; when that has gone, the channel tells.
        SigSet::all().thread_set_mask()?;
        prctl::set_no_new_privs()?;
        prctl::set_dumpable(false)?;
        privileges::keep_for_commands();
        let mut backoff = Backoff::new(std::process::id());
        loop {
            // Whoever is left behind by the other process becomes this one's child; where it does not, as
            // under qemu-user, init's.
            let _ = prctl::set_child_subreaper(true);
            let (parent, began) = (getpid(), clock::now());
            // SAFETY: the process has one thread.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => match self.work(parent)? {
                    End::Closed => return Ok(()),
                    End::Orphaned => {
                        self.send(&Message::Restarted(None))?;
                        continue;
                    }
                },
                Ok(ForkResult::Parent { child }) if ends_well(child, self.shared) => return Ok(()),
                _ => {}
            }
            self.send(&Message::Restarted(self.shared.clear()))?;
            let now = clock::now();
            if now > began + STABLE_AFTER {
                backoff.reset();
            }
            if self.closes_within(backoff.after_failure(now) - now) {
                return Ok(());
            }
        }
    }

    /// Runs what is asked for, one command after another.
    fn work(&self, parent: Pid) -> nix::Result<End> {
        let runner = Runner::new(self.shared, parent)?;
        let channel = self.channel.as_raw_fd();
        loop {
            if runner.is_orphaned() {
                return Ok(End::Orphaned);
            }
            let mut request = [0; 4];
            // Until it is known to be under way it can be read again.
            let length =
                match recv(channel, &mut request, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
                    Err(NixErrno::EAGAIN) => {
                        runner.sleep(self.channel.as_fd());
                        continue;
                    }
                    received => received?,
                };
            let Some((command, number)) = request.get(..length).and_then(decode_request) else {
                return Ok(End::Closed);
            };
            self.shared.begin(number);
            recv(channel, &mut request, MsgFlags::MSG_DONTWAIT)?;
            let Some((end, dropped)) = self.run(&runner, command) else { return Ok(End::Closed) };
            self.send(&Message::Ended { number, end, dropped })?;
            self.shared.end();
        }
    }

    /// None: the daemon has gone meanwhile.
    fn run(&self, runner: &Runner, command: SyncCommand) -> Option<(CommandResult, u32)> {
        let Jail { program: path, configuration, .. } = &self.jail;
        let words: &[&CStr] = &[path, c"-C", configuration, command.flag()];
        let program =
            Program { path, words, timeout: COMMAND_TIMEOUT, confine: &|| self.jail.enter() };
        runner.run(&program, self.channel.as_fd(), &mut |line| {
            // If the daemon has gone, it is noticed soon enough.
            let _ = self.send(&Message::Printed(line));
        })
    }

    fn send(&self, message: &Message<'_>) -> nix::Result<()> {
        send(self.channel.as_raw_fd(), &encode_message(message), MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// Waits, unless the daemon goes.
    fn closes_within(&self, wait: Duration) -> bool {
        let mut channel = [PollFd::new(self.channel.as_fd(), PollFlags::empty())];
        let timeout = PollTimeout::try_from(std::time::Duration::from(wait));
        poll(&mut channel, timeout.unwrap_or(PollTimeout::MAX)).is_ok_and(|closed| closed > 0)
    }
}

/// Waits for the end of the process that runs the commands. Tells whether it ended by itself, with code 0.
///
/// Those that others have left behind are waited for too, but not the leader of the group that this
/// process's end has left: as long as nobody has waited for it, the group's number is its own.
fn ends_well(child: Pid, shared: &Shared) -> bool {
    loop {
        let ended = any_ended();
        if ended == Some(child.as_raw()) || ended == shared.group() || ended.is_none() {
            let mut status = 0;
            // SAFETY: the kernel writes the status.
            let waited = unsafe { libc::waitpid(child.as_raw(), &raw mut status, 0) };
            return waited == child.as_raw() && status == 0;
        }
        // SAFETY: there is nothing to be told of it.
        unsafe { libc::waitpid(ended.unwrap_or(-1), null_mut(), libc::WNOHANG) };
    }
}

/// Waits until any child has ended, which is still to be waited for then. None: there is no child.
fn any_ended() -> Option<libc::pid_t> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: the kernel writes a `siginfo_t`.
    let waited = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), how) };
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote, of a child.
    (waited == 0).then(|| unsafe { info.assume_init().si_pid() })
}
