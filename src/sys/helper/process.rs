//! The helper process: waits for requests, runs one program at a time within its time limit, and reads what is
//! printed.

#![expect(unsafe_code, reason = "what a new process does before it executes the program")]

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getpid, getppid, pipe2, setsid};

use super::{Runnable, receive, send};
use crate::errno::Errno;
use crate::sys::signals;
use crate::wire::helper::{CommandResult, MAX_OUTPUT, MAX_REPORT, Report, Request};

/// How long to wait for a killed program, which may be stuck in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// What a pipe holds, in bytes (`pipe(7)`).
const PIPE_CAPACITY: u64 = 65_536;

pub(super) struct HelperProcess<'a> {
    channel: &'a OwnedFd,
    runnable: &'a mut dyn Runnable,
    /// SIGCHLD.
    children: SignalFd,
    /// One pipe for all programs, and its writing end kept open: so what a hook leaves in the background can go
    /// on printing, and no program is ended by SIGPIPE.
    reader: PipeReader,
    writer: PipeWriter,
    /// What the program under way has printed, up to [`MAX_OUTPUT`].
    output: Vec<u8>,
}

impl<'a> HelperProcess<'a> {
    /// Blocks every signal: those to the daemon's group are for the daemon, whose end the channel reports.
    pub(super) fn new(channel: &'a OwnedFd, runnable: &'a mut dyn Runnable) -> Result<Self, Errno> {
        SigSet::all().thread_set_mask()?;
        // The end of a child would not be reported if the daemon's starter had ignored it.
        signals::reset();
        let children = signals::block_these([Signal::SIGCHLD].into_iter().collect())?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let (reader, writer) = (reader.into(), writer.into());
        Ok(Self { channel, runnable, children, reader, writer, output: Vec::new() })
    }

    /// Runs what the daemon asks for, until that has gone.
    pub(super) fn serve(mut self) {
        loop {
            let is_asked = self.poll(None);
            // Those that took too long to die after they were killed.
            let reap = || waitpid(None, Some(WaitPidFlag::WNOHANG));
            while reap().is_ok_and(|status| status != WaitStatus::StillAlive) {}
            self.read_output();
            self.output.clear();
            if is_asked {
                match receive(self.channel, &mut [0; 8], MsgFlags::empty()) {
                    Ok(request) => self.run(request),
                    Err(_) => break,
                }
            }
        }
        self.discard_rest();
    }

    /// Runs a program to its end, and reports that.
    fn run(&mut self, request: Request) {
        let (end, killed) = match self.start(request) {
            Ok(program) => self.wait_and_kill(program),
            Err(failure) => (failure, 0),
        };
        self.read_output();
        let report = Report { end, killed, output: &self.output };
        // If the daemon has gone, the channel says so.
        let _ = send(self.channel, &report, &mut [0; MAX_REPORT]);
        self.output.clear();
    }

    fn start(&mut self, request: Request) -> Result<Pid, CommandResult> {
        let not_started = |error: io::Error| CommandResult::NotStarted(error.into());
        let mut command = self.runnable.command(request)?;
        // A program may have made its end nonblocking, which is every program's.
        let _ = fcntl(&self.writer, FcntlArg::F_SETFL(OFlag::empty()));
        command.stdout(self.writer.try_clone().map_err(not_started)?);
        command.stderr(self.writer.try_clone().map_err(not_started)?);
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
        let child = command.spawn().map_err(not_started)?;
        Ok(Pid::from_raw(child.id().cast_signed()))
    }

    /// Waits for the end of a program. Kills its session unless it has succeeded. Returns how many processes a
    /// failed one had left there.
    fn wait_and_kill(&mut self, program: Pid) -> (CommandResult, u32) {
        let ended = self.wait(program, self.runnable.timeout());
        let (end, killed) = match ended {
            Some(end @ CommandResult::Exited(0)) => (end, 0),
            // Until it is reaped, its number remains that of its session.
            Some(failure) => (failure, kill_session(program)),
            None => {
                kill_session(program);
                self.wait(program, KILL_GRACE);
                (CommandResult::TimedOut, 0)
            }
        };
        let _ = waitpid(program, Some(WaitPidFlag::WNOHANG));
        (end, killed)
    }

    /// Waits until a program has ended, and reads what it prints meanwhile. Returns how it ended. `None`: it has
    /// not, and the time is over or the daemon has gone.
    fn wait(&mut self, program: Pid, limit: Duration) -> Option<CommandResult> {
        let deadline = Instant::now() + limit;
        loop {
            let end = peek(program);
            let left = deadline.saturating_duration_since(Instant::now());
            // The daemon asks for nothing more before it has the report.
            if end.is_some() || left.is_zero() || self.poll(Some(left)) {
                return end;
            }
            self.read_output();
        }
    }

    /// Waits until there is something to read, or a child has ended. Returns whether there is from the daemon.
    fn poll(&self, limit: Option<Duration>) -> bool {
        let mut fds = [self.channel.as_fd(), self.reader.as_fd(), self.children.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = ppoll(&mut fds, limit.map(Into::into), None);
        // It matters that one has ended, not which.
        while signals::next(&self.children).is_some() {}
        fds[0].any() == Some(true)
    }

    /// Reads what has been printed, but no more than a pipe holds: who prints on and on is not to keep us here.
    fn read_output(&mut self) {
        let _ = (&self.reader).take(PIPE_CAPACITY).read_to_end(&mut self.output);
        self.output.truncate(MAX_OUTPUT);
    }

    /// After the daemon's end: reads on as long as something that a hook has left in the background may print.
    /// Signals end this process, and so does the end of those.
    fn discard_rest(self) {
        let Self { mut reader, writer, .. } = self;
        drop(writer);
        // Whoever reads what the daemon wrote there has read all.
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let _ = (dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null));
        }
        signals::unblock();
        let _ = fcntl(&reader, FcntlArg::F_SETFL(OFlag::empty()));
        let _ = io::copy(&mut reader, &mut io::sink());
    }
}

/// How a child has ended, if it has. It is not reaped.
fn peek(child: Pid) -> Option<CommandResult> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match waitid(Id::Pid(child), flags) {
        Ok(WaitStatus::StillAlive) => None,
        Ok(WaitStatus::Exited(_, code)) => Some(CommandResult::Exited(byte(code))),
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            Some(CommandResult::Signalled(byte(signal as i32)))
        }
        // By a signal of real time, which nix does not know.
        _ => Some(CommandResult::Signalled(u8::MAX)),
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
