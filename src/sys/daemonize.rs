//! Becoming a daemon: the forks, and the process that waits until the daemon is up.

#![expect(unsafe_code, reason = "fork")]

use std::fs::File;
use std::io::{PipeReader, Read, pipe};
use std::os::fd::AsFd;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

use super::service_manager::{ReadinessNotifier, UP};
use super::signals::{self, Signals};
use crate::errno::Errno;

/// The parent's side of the start.
#[derive(Debug)]
pub struct Waiting {
    pipe: PipeReader,
    /// The daemon's process group. Its leader has ended and is not waited for, so that this remains its
    /// number.
    group: Pid,
}

/// Which process one is after [`daemonize`].
#[derive(Debug)]
pub enum ForkSide {
    /// The one that was started: it waits for what the daemon says.
    Parent(Waiting),
    /// The daemon.
    Daemon(ReadinessNotifier),
}

/// Forks twice, so that the daemon leads no session and belongs to no terminal. It keeps the command
/// line, by which the agent recognises it, and has `/dev/null` for its standard streams.
///
/// # Errors
/// The errno of the step that failed, in one line.
pub fn daemonize() -> Result<ForkSide, String> {
    fork_twice().map_err(|errno| format!("becoming a daemon: {errno}"))
}

fn fork_twice() -> Result<ForkSide, Errno> {
    let (parent_end, daemon_end) = pipe()?;
    // SAFETY: the process has one thread.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        drop(daemon_end);
        waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        return Ok(ForkSide::Parent(Waiting { pipe: parent_end, group: child }));
    }
    drop(parent_end);
    setsid()?;
    // SAFETY: as above.
    if let ForkResult::Parent { .. } = unsafe { fork() }? {
        // SAFETY: ends this process, and runs nothing of what the other has inherited.
        unsafe { libc::_exit(0) }
    }
    chdir(c"/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(ForkSide::Daemon(ReadinessNotifier::Parent(daemon_end.into())))
}

/// In the parent: waits until the daemon is up. It passes on a signal that ends it, as the daemon is no longer
/// in the terminal's process group.
///
/// # Errors
/// Why it did not come up, in its own words.
pub fn await_daemon(mut waiting: Waiting) -> Result<(), String> {
    let mut said = String::new();
    let read = waiting.wait().and_then(|()| Ok(waiting.pipe.read_to_string(&mut said)?));
    read.map_err(|errno| format!("waiting for the daemon: {errno}"))?;
    match said.as_str() {
        UP => Ok(()),
        "" => Err("the daemon exited before it was ready".into()),
        _ => Err(said),
    }
}

impl Waiting {
    /// Waits until the daemon has written something. Passes SIGTERM and SIGINT on to it, and ends by them.
    fn wait(&self) -> Result<(), Errno> {
        let ending: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        // The others that the daemon handles end this process.
        ending.thread_set_mask()?;
        let signals = Signals::of(ending)?;
        loop {
            let fds = &mut [self.pipe.as_fd(), signals.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if let Some(signal) = signals.next().and_then(|n| Signal::try_from(n).ok()) {
                // It ends as quickly by itself.
                let _ = killpg(self.group, signal);
                signals::unblock();
                raise(signal)?;
            }
            if fds[0].any() == Some(true) {
                return Ok(());
            }
        }
    }
}
