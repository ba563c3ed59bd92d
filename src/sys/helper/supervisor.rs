//! The processes behind the channel: one runs the programs, the other restarts it. If either is killed, the
//! other takes both parts, so that only the end of both is the end.

#![expect(unsafe_code, reason = "fork and waitpid")]

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::SigSet;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::program::{Program, Runner, Shared};
use super::{Hook, Jail, Programs};
use crate::errno::Errno;
use crate::monitor::{Backoff, CommandResult, Duration, HookCall, SyncCommand};
use crate::sys::{clock, privileges, process, signals};
use crate::wire::helper::{Message, Request, decode_request, encode_message};

/// A command that has not ended after this is killed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that ran this long did not fail for a reason that it started with.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// What both processes know.
pub(super) struct Server {
    channel: OwnedFd,
    programs: Programs,
    shared: &'static Shared,
}

/// Why a process works no more.
enum End {
    /// The daemon has gone.
    Closed,
    /// The supervising process has been killed.
    Orphaned,
}

impl Server {
    pub(super) fn new(channel: OwnedFd, programs: Programs) -> Result<Self, Errno> {
        Ok(Self { channel, programs, shared: Shared::new()? })
    }

    /// Tells whether it can serve, as an errno, and serves until the daemon has gone.
    pub(super) fn serve(&self) -> nix::Result<()> {
        let prepared = self.prepare();
        let errno = prepared.err().map_or(0, |errno| errno as i32);
        let errno = u8::try_from(errno).unwrap_or(u8::MAX);
        send(self.channel.as_raw_fd(), &[errno], MsgFlags::MSG_NOSIGNAL)?;
        prepared?;
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

    /// Gives up what is not needed to run the programs.
    fn prepare(&self) -> nix::Result<()> {
        process::close_all_but(self.channel.as_fd());
        // Signals to the group are for the daemon; when that has gone, the channel tells. Children's ends are
        // to be told, which the daemon may ignore.
        SigSet::all().thread_set_mask()?;
        signals::reset();
        match &self.programs {
            Programs::Sync(_) => {
                process::rename(c"keepwatch-sync");
                prctl::set_no_new_privs()?;
                privileges::keep_for_commands();
            }
            Programs::Hook(hook) => {
                process::rename(c"keepwatch-hook");
                hook.prepare()?;
            }
        }
        prctl::set_dumpable(false)
    }

    /// Runs what is asked for, one program after another.
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
            let Some((request, number)) = request.get(..length).and_then(decode_request) else {
                return Ok(End::Closed);
            };
            self.shared.begin(number);
            recv(channel, &mut [0; 4], MsgFlags::MSG_DONTWAIT)?;
            let Some((end, dropped)) = self.run(&runner, request) else { return Ok(End::Closed) };
            self.send(&Message::Ended { number, end, dropped })?;
            self.shared.end();
        }
    }

    /// None: the daemon has gone meanwhile, or asks for what this is not for.
    fn run(&self, runner: &Runner, request: Request) -> Option<(CommandResult, u32)> {
        let run = |program: &Program<'_>| {
            runner.run(program, self.channel.as_fd(), &mut |line| {
                // If the daemon has gone, it is noticed soon enough.
                let _ = self.send(&Message::Printed(line));
            })
        };
        match (&self.programs, request) {
            (Programs::Sync(jail), Request::Sync(command)) => run_command(jail, command, &run),
            (Programs::Hook(hook), Request::Hook(call)) => run_hook(hook, call, &run),
            _ => None,
        }
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

type Run<'a> = &'a dyn Fn(&Program<'_>) -> Option<(CommandResult, u32)>;

fn run_command(jail: &Jail, command: SyncCommand, run: Run<'_>) -> Option<(CommandResult, u32)> {
    let Jail { program: path, configuration, .. } = jail;
    run(&Program {
        path,
        words: &[path, c"-C", configuration, command.flag()],
        environment: &[],
        timeout: COMMAND_TIMEOUT,
        confine: &|| jail.enter(),
    })
}

/// As keepalived calls the notify script of an instance, whose priority it does not know.
fn run_hook(hook: &Hook, call: HookCall, run: Run<'_>) -> Option<(CommandResult, u32)> {
    let Hook { program: path, router, timeout, .. } = hook;
    run(&Program {
        path,
        words: &[path, c"INSTANCE", router, call.state.word(), c"0"],
        environment: &hook.environment(call),
        timeout: *timeout,
        confine: &|| hook.check().map_err(CommandResult::NotStarted),
    })
}

/// Waits for the end of the process that runs the programs. Tells whether it ended by itself, with code 0.
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
