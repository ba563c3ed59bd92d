//! Becoming a daemon: the forks, and the process that waits until the daemon is up.

#![expect(unsafe_code, reason = "fork, and a handler of signals")]

use std::fs::File;
use std::io::{PipeReader, Read, pipe};

use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};
use signal_hook::low_level::{emulate_default_handler, register};

use super::service_manager::{ReadinessNotifier, UP};
use super::signals;
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
    Ok(ForkSide::Daemon(ReadinessNotifier::Parent(daemon_end)))
}

/// In the parent: waits until the daemon is up.
///
/// # Errors
/// Why it did not come up, in its own words.
pub fn await_daemon(waiting: Waiting) -> Result<(), String> {
    let said = waiting.read().map_err(|errno| format!("waiting for the daemon: {errno}"))?;
    match said.as_str() {
        UP => Ok(()),
        "" => Err("the daemon exited before it was ready".into()),
        _ => Err(said),
    }
}

impl Waiting {
    /// Reads what the daemon says. Passes SIGTERM and SIGINT on to it, as it is no longer in the terminal's process
    /// group, and ends by them.
    fn read(mut self) -> Result<String, Errno> {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let pass_on = move || {
                let _ = killpg(self.group, signal);
                // The daemon ends as quickly by itself.
                let _ = emulate_default_handler(signal as i32);
            };
            // SAFETY: both calls are safe in a handler (`signal-safety(7)`).
            unsafe { register(signal as i32, pass_on) }?;
        }
        signals::unblock();
        let mut said = String::new();
        self.pipe.read_to_string(&mut said)?;
        Ok(said)
    }
}
