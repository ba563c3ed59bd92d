//! Becoming a daemon: forks, and waits in the starter until the daemon is up.

#![expect(unsafe_code, reason = "fork, and a signal handler")]

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::process::exit;
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};
use signal_hook::low_level::{emulate_default_handler, register};

use super::process::drop_standard_streams;
use crate::errno::Errno;
use crate::sys::service_manager::{ReadinessNotifier, UP};
use crate::sys::signals;

/// How long the starter waits for the daemon, as an agent may wait for the starter.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Forks twice, so that the daemon leads no session and belongs to no terminal. Its standard streams are `/dev/null`.
/// The starter gets `None` once the daemon is up. After `START_LIMIT` it reports the last failure that is retried.
///
/// # Errors
/// The step that failed, or the daemon's own error, in one line.
pub fn daemonize(report: impl FnOnce(&str)) -> Result<Option<ReadinessNotifier>, String> {
    let failed = |errno: NixErrno| format!("becoming a daemon: {}", Errno::from(errno));
    // The daemon never waits for room.
    let pipe = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
    // SAFETY: the process has one thread.
    let ForkResult::Parent { child } = unsafe { fork() }.map_err(failed)? else {
        let mut starter = ReadinessNotifier::Parent(pipe.1.into());
        let detached = leave_session().map_err(failed).and_then(|()| drop_standard_streams());
        if let Err(error) = detached {
            // The starter prints it.
            starter.failed(&error);
            exit(1);
        }
        return Ok(Some(starter));
    };
    drop(pipe.1);
    // The child's number stays reserved for the daemon's process group, as it is not reaped.
    waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map_err(failed)?;
    let (text, has_ended) = read_from_daemon(pipe.0.into(), child)
        .map_err(|errno| format!("waiting for the daemon: {errno}"))?;
    // Each failure that is retried is a line. The last message is not.
    let (failures, last) = text.rsplit_once('\n').unwrap_or(("", &text));
    match last {
        UP => Ok(None),
        "" if has_ended => Err("the daemon exited before it was ready".into()),
        error if has_ended => Err(error.into()),
        // What there is of a line that is not at its end yet does not count.
        _ => {
            let failure = failures.lines().next_back().unwrap_or("the first state is not known");
            report(&format!("not up yet, still trying: {failure}"));
            Ok(None)
        }
    }
}

/// Begins a session, and forks once more, so that the daemon does not lead it.
fn leave_session() -> nix::Result<()> {
    setsid()?;
    // SAFETY: the process has one thread.
    if let ForkResult::Parent { .. } = unsafe { fork() }? {
        // SAFETY: ends this process without running any inherited code.
        unsafe { libc::_exit(0) }
    }
    Ok(())
}

/// Reads the daemon's messages until it closes the pipe or the timeout. Returns them, and whether the pipe was closed.
/// SIGTERM and SIGINT end this process, and are passed on to the daemon, which a terminal no longer reaches.
fn read_from_daemon(mut pipe: PipeReader, group: Pid) -> Result<(String, bool), Errno> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let pass_on = move || {
            let _ = killpg(group, signal);
            // If this fails, the daemon's end ends this process.
            let _ = emulate_default_handler(signal as i32);
        };
        // SAFETY: both calls are safe in a handler (`signal-safety(7)`).
        unsafe { register(signal as i32, pass_on) }?;
    }
    signals::unblock_all_but_usr2();
    let (mut text, limit) = (Vec::new(), Instant::now() + START_LIMIT);
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        // After an interruption nothing is read.
        let _ = ppoll(&mut fds, Some(left.into()), None);
        let has_ended = pipe.read_to_end(&mut text).is_ok();
        if has_ended || left.is_zero() {
            return Ok((String::from_utf8_lossy(&text).into(), has_ended));
        }
    }
}
