//! The helper process: waits for requests, runs one program at a time within its time limit, and reads what is
//! printed.

#![expect(unsafe_code, reason = "what a new process does before it executes the program")]

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid, getppid, pipe2, setsid};

use super::Runnable;
use super::output::Output;
use crate::sys::signals::{self, Signals};
use crate::wire::helper::{CommandResult, HelperEvent, Request};

/// How long to wait for a killed program, which may be stuck in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// As much as fits into a pipe, in reads.
const READS_OF_A_PIPE: usize = 16;

/// The helper process.
pub(super) struct HelperProcess<'a> {
    channel: &'a OwnedFd,
    runnable: &'a dyn Runnable,
    /// SIGCHLD.
    children: Signals,
    /// One pipe for all programs, and its writing end kept open: so what a hook leaves in the background can go
    /// on printing, and no program is ended by SIGPIPE.
    reader: PipeReader,
    writer: PipeWriter,
    output: Output,
}

/// Why a wait has ended.
#[derive(PartialEq)]
enum Wait {
    Exited,
    TimedOut,
    DaemonGone,
}

impl<'a> HelperProcess<'a> {
    /// Blocks every signal: those to the daemon's group are for the daemon, whose end the channel reports.
    pub(super) fn new(channel: &'a OwnedFd, runnable: &'a dyn Runnable) -> io::Result<Self> {
        SigSet::all().thread_set_mask()?;
        // The end of a child would not be reported if the daemon's starter had ignored it.
        signals::reset();
        let children = Signals::of([Signal::SIGCHLD].into_iter().collect());
        let children = children.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let (reader, writer) = (reader.into(), writer.into());
        Ok(Self { channel, runnable, children, reader, writer, output: Output::default() })
    }

    /// Runs what the daemon asks for, until that has gone.
    pub(super) fn serve(mut self) {
        loop {
            self.poll(None);
            self.drain(1);
            let mut request = [0];
            match recv(self.channel.as_raw_fd(), &mut request, MsgFlags::MSG_DONTWAIT) {
                Err(nix::Error::EAGAIN) => {}
                Ok(1) => match Request::decode(request[0]) {
                    Some(request) if self.run(request) != Wait::DaemonGone => {}
                    _ => break,
                },
                _ => break,
            }
        }
        self.discard_rest();
    }

    /// Runs a program to its end, and reports that.
    fn run(&mut self, request: Request) -> Wait {
        // Those that took too long to die after they were killed.
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|s| s != WaitStatus::StillAlive) {
        }
        self.output.begin_run();
        let started = self.runnable.command(request).and_then(|command| {
            self.start(command).map_err(|error| CommandResult::NotStarted(error.into()))
        });
        let (waited, end, killed) = match started {
            Ok(child) => self.wait_and_kill(child),
            Err(failure) => (Wait::Exited, failure, 0),
        };
        self.drain(READS_OF_A_PIPE);
        let discarded =
            self.output.end_run(|line| report(self.channel, &HelperEvent::Printed(line)));
        report(self.channel, &HelperEvent::Ended { end, discarded, killed });
        waited
    }

    fn start(&self, mut command: Command) -> io::Result<Child> {
        // A program may have made its end nonblocking, which is every program's.
        fcntl(&self.writer, FcntlArg::F_SETFL(OFlag::empty()))?;
        command.stdout(self.writer.try_clone()?).stderr(self.writer.try_clone()?);
        let helper = getpid();
        let prepare = move || {
            setsid()?;
            // Whatever kills the helper, the program does not outlive it.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            signals::unblock();
            if getppid() == helper { Ok(()) } else { Err(nix::Error::ECHILD.into()) }
        };
        // SAFETY: nothing but system calls.
        unsafe { command.pre_exec(prepare) };
        command.spawn()
    }

    /// Waits for the end of a program. Kills its session unless it has succeeded. Returns how many processes a
    /// failed one had left there.
    fn wait_and_kill(&mut self, mut child: Child) -> (Wait, CommandResult, u32) {
        let pid = Pid::from_raw(child.id().cast_signed());
        let waited = self.wait(pid, self.runnable.timeout());
        if waited != Wait::Exited {
            kill_session(pid);
            self.wait(pid, KILL_GRACE);
            let _ = child.try_wait();
            return (waited, CommandResult::TimedOut, 0);
        }
        // Until it is reaped, its number remains that of its session.
        let killed = if succeeded(pid) { 0 } else { kill_session(pid) };
        (waited, child.wait().map_or(CommandResult::TimedOut, command_result), killed)
    }

    /// Waits until a child has exited, and reads what is printed meanwhile.
    fn wait(&mut self, child: Pid, limit: Duration) -> Wait {
        let deadline = Instant::now() + limit;
        loop {
            if peek(child) != Ok(WaitStatus::StillAlive) {
                return Wait::Exited;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Wait::TimedOut;
            }
            // The daemon asks for nothing more before it has the result.
            if self.poll(Some(left)) {
                return Wait::DaemonGone;
            }
            self.drain(1);
        }
    }

    /// Waits until there is something to read, or a child has exited. Returns whether there is from the daemon.
    fn poll(&self, limit: Option<Duration>) -> bool {
        let [channel, reader, children] =
            [self.channel.as_fd(), self.reader.as_fd(), self.children.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds = [channel, reader, children];
        // Rounded up, or the last part of a millisecond would be spent in a loop.
        let limit = limit.map(|limit| limit + Duration::from_millis(1));
        let limit = limit.map_or(Ok(PollTimeout::NONE), PollTimeout::try_from);
        let _ = poll(&mut fds, limit.unwrap_or(PollTimeout::MAX));
        // It matters that one has exited, not which.
        while self.children.next().is_some() {}
        let [channel, ..] = fds;
        channel.any() == Some(true)
    }

    /// Reads what has been printed, at most so many times.
    fn drain(&mut self, times: usize) {
        let mut buffer = [0; 4096];
        for _ in 0..times {
            let Ok(length) = self.reader.read(&mut buffer) else { return };
            let printed = buffer.get(..length).unwrap_or_default();
            self.output.push(printed, |line| report(self.channel, &HelperEvent::Printed(line)));
        }
    }

    /// After the daemon's end: reads on as long as something that a hook has left in the background may print.
    /// Signals end this process, and so does the end of those.
    fn discard_rest(self) {
        let Self { mut reader, writer, .. } = self;
        drop(writer);
        signals::unblock();
        let _ = fcntl(&reader, FcntlArg::F_SETFL(OFlag::empty()));
        let mut buffer = [0; 4096];
        while reader.read(&mut buffer).is_ok_and(|length| length > 0) {}
    }
}

/// If the daemon has gone, the channel says so.
fn report(channel: &OwnedFd, event: &HelperEvent<'_>) {
    let _ = send(channel.as_raw_fd(), &event.encode(), MsgFlags::MSG_NOSIGNAL);
}

/// How a child has ended, if it has. It is not reaped.
fn peek(child: Pid) -> nix::Result<WaitStatus> {
    waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT)
}

fn succeeded(child: Pid) -> bool {
    peek(child) == Ok(WaitStatus::Exited(child, 0))
}

fn command_result(status: ExitStatus) -> CommandResult {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match status.code() {
        Some(code) => CommandResult::Exited(byte(code)),
        None => CommandResult::Signalled(status.signal().map_or(u8::MAX, byte)),
    }
}

/// Kills a session. Returns how many processes it had beside its leader.
fn kill_session(leader: Pid) -> u32 {
    let others = session_members(leader).filter(|pid| *pid != leader).count();
    // The leader's group first, all at once: nothing in it may go on because of another's end.
    let _ = killpg(leader, Signal::SIGKILL);
    for pid in session_members(leader) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    u32::try_from(others).unwrap_or(u32::MAX)
}

/// The processes of a session that are no zombies.
fn session_members(session: Pid) -> impl Iterator<Item = Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // Behind the name, which may have any character: state, parent, group, session (`proc_pid_stat(5)`).
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_alive = !matches!(fields.next()?, "Z" | "X");
        let is_member = fields.nth(2)?.parse() == Ok(session.as_raw());
        (is_alive && is_member).then(|| Pid::from_raw(pid))
    })
}
