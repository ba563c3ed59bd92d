//! Becoming a daemon: the forks, and the process that waits until the daemon is up.

#![expect(unsafe_code, reason = "fork, and a handler of signals")]

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, pipe};

use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};
use signal_hook::low_level::{emulate_default_handler, register};

use super::service_manager::{ReadinessNotifier, UP};
use super::signals;
use crate::errno::Errno;

/// Forks twice, so that the daemon leads no session and belongs to no terminal. It keeps the command
/// line, by which the agent recognises it, and has `/dev/null` for its standard streams.
///
/// The process that was started waits until the daemon is up, and gets `None`.
///
/// # Errors
/// The errno of the step that failed, or why the daemon did not come up in its own words, in one line.
pub fn daemonize() -> Result<Option<ReadinessNotifier>, String> {
    let said = match fork_twice().map_err(|errno| format!("becoming a daemon: {errno}"))? {
        ForkSide::Daemon(pipe) => return Ok(Some(ReadinessNotifier::Parent(pipe))),
        ForkSide::Parent(pipe, group) => read_from_daemon(pipe, group),
    };
    match said.map_err(|errno| format!("waiting for the daemon: {errno}"))?.as_str() {
        UP => Ok(None),
        "" => Err("the daemon exited before it was ready".into()),
        error => Err(error.into()),
    }
}

enum ForkSide {
    /// The daemon's process group. Its leader has ended and is not waited for, so that this remains its number.
    Parent(PipeReader, Pid),
    Daemon(PipeWriter),
}

fn fork_twice() -> Result<ForkSide, Errno> {
    let (parent_end, daemon_end) = pipe()?;
    // SAFETY: the process has one thread.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        return Ok(ForkSide::Parent(parent_end, child));
    }
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
    Ok(ForkSide::Daemon(daemon_end))
}

/// Reads what the daemon says. Passes SIGTERM and SIGINT on to it, as it is no longer in the terminal's process
/// group, and ends by them.
fn read_from_daemon(mut pipe: PipeReader, group: Pid) -> Result<String, Errno> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let pass_on = move || {
            let _ = killpg(group, signal);
            // The daemon ends as quickly by itself.
            let _ = emulate_default_handler(signal as i32);
        };
        // SAFETY: both calls are safe in a handler (`signal-safety(7)`).
        unsafe { register(signal as i32, pass_on) }?;
    }
    signals::unblock();
    let mut said = String::new();
    pipe.read_to_string(&mut said)?;
    Ok(said)
}
