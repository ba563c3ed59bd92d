//! The helper process: waits for requests, runs one program at a time within its time limit, and reads its output.

#![expect(unsafe_code, reason = "pre_exec, and system calls that nix lacks")]

use core::mem::zeroed;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid, getsid, pipe2, setsid};

use super::{FailedStep, Runnable, in_step, is_temporary, receive, report};
use crate::start::process::drop_standard_streams;
use crate::sys::signals;
use crate::wire::helper::{CommandResult, HOOK_RUNS, MAX_OUTPUT, MAX_REPORT, RunReport};

/// How long to wait for a killed program, which may be stuck in the kernel.
pub(super) const KILL_GRACE: Duration = Duration::from_millis(500);

/// In bytes (`pipe(7)`).
const PIPE_CAPACITY: u64 = 65_536;

pub(super) struct HelperProcess {
    pub(super) channel: OwnedFd,
    /// SIGCHLD.
    children: SignalFd,
    /// The kernel's list of this process's children. `None`: the kernel has none (`CONFIG_PROC_CHILDREN`),
    /// or does not give it orphans (qemu-user).
    list: Option<File>,
    /// One pipe for all programs. Its writing end stays open, so that SIGPIPE does not end a background process.
    reader: PipeReader,
    writer: PipeWriter,
    /// The output of the program under way, up to [`MAX_OUTPUT`].
    output: Vec<u8>,
    /// When the last requests were served, the oldest first.
    served: [Option<Instant>; HOOK_RUNS],
}

impl HelperProcess {
    /// Prepares this process, and blocks every signal: the channel reports the daemon's end.
    pub(super) fn new(channel: OwnedFd) -> Result<Self, FailedStep<'static>> {
        SigSet::all().thread_set_mask().map_err(in_step("signal mask"))?;
        // An inherited SIG_IGN would suppress SIGCHLD.
        signals::reset();
        let children = signals::block_these([Signal::SIGCHLD].into_iter().collect());
        let children = children.map_err(in_step("signalfd"))?;
        // Orphans become children of this process. So it knows without a search that a run has left none.
        let list = File::open("/proc/thread-self/children").ok();
        let list = list.filter(|_| prctl::set_child_subreaper(true).is_ok());
        let pipe = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(in_step("pipe"))?;
        // A hook may run a part of itself as another user, who opens it as /dev/stdout. Some sandboxes allow no change of a pipe's
        // mode: that part cannot open it then.
        let _ = fchmod(&pipe.1, Mode::from_bits_truncate(0o622));
        let (reader, writer) = (pipe.0.into(), pipe.1.into());
        let served = [None; HOOK_RUNS];
        Ok(Self { channel, children, list, reader, writer, output: Vec::new(), served })
    }

    /// Runs programs on request, until the daemon exits.
    pub(super) fn serve(mut self, runnable: &mut impl Runnable) {
        loop {
            let is_requested = self.poll(None);
            // Reaps killed programs that outlived the grace period.
            let reap = || waitpid(None, Some(WaitPidFlag::WNOHANG));
            while reap().is_ok_and(|status| status != WaitStatus::StillAlive) {}
            self.read_output();
            self.output.clear();
            if is_requested {
                match receive(&self.channel, &mut [0; 8], MsgFlags::empty()) {
                    Ok(request) => self.take_turn(runnable, &request),
                    Err(errno) if is_temporary(errno) => {}
                    Err(_) => return self.discard_rest(),
                }
            }
        }
    }

    /// Serves a request, but no more than [`HOOK_RUNS`] in [`Runnable::PERIOD`]. The core keeps to that itself, but code
    /// inside the daemon could otherwise run root's hook without a pause.
    fn take_turn<R: Runnable>(&mut self, runnable: &mut R, request: &R::Request) {
        let [oldest, ..] = self.served;
        loop {
            let ago = oldest.map_or(Duration::MAX, |oldest| oldest.elapsed());
            let left = R::PERIOD.saturating_sub(ago);
            if left.is_zero() {
                break;
            } else if self.poll(Some(left)) && self.is_abandoned() {
                return;
            }
            self.read_output();
        }
        self.served.rotate_left(1);
        let [.., last] = &mut self.served;
        *last = Some(Instant::now());
        self.run(runnable, request);
    }

    /// Runs the programs of a request to their ends, and reports the first failure.
    fn run<R: Runnable>(&mut self, runnable: &mut R, request: &R::Request) {
        let mut result = (CommandResult::Unneeded, 0);
        let mut last = None;
        while let Some(command) = runnable.next(request, last) {
            let started = command.and_then(|command| {
                self.start(command).map_err(|error| CommandResult::NotStarted(error.into()))
            });
            let (end, killed) = match started {
                Ok(program) => self.wait_and_kill(program, R::limit(request)),
                Err(failure) => (failure, 0),
            };
            if matches!(result.0, CommandResult::Unneeded | CommandResult::Exited(0)) {
                result.0 = end;
            }
            result.1 += killed;
            last = Some(end);
            if self.poll(Some(Duration::ZERO)) && self.is_abandoned() {
                break;
            }
        }
        self.read_output();
        let (end, killed) = result;
        let ended = RunReport { end, killed, output: &self.output };
        report(&self.channel, &ended, &mut [0; MAX_REPORT]);
        self.output.clear();
    }

    fn start(&mut self, mut command: Command) -> io::Result<Pid> {
        // An earlier program may have made the shared writing end nonblocking. Never fails.
        let _ = fcntl(&self.writer, FcntlArg::F_SETFL(OFlag::empty()));
        command.stdout(self.writer.try_clone()?);
        command.stderr(self.writer.try_clone()?);
        let helper = getpid();
        let prepare = move || {
            setsid()?;
            // The program must not outlive a helper that is killed.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            signals::unblock();
            if getppid() == helper { Ok(()) } else { Err(nix::Error::ECHILD.into()) }
        };
        // SAFETY: makes only system calls, and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        Ok(Pid::from_raw(child.id().cast_signed()))
    }

    /// Waits for a program. Kills its session unless it succeeds or has ended alone. Returns the number of other processes
    /// killed after a failure.
    fn wait_and_kill(&mut self, program: Pid, limit: Duration) -> (CommandResult, u32) {
        let (end, killed) = match self.wait(program, limit) {
            Some(end @ CommandResult::Exited(0)) => (end, 0),
            // Its pid remains the session's until it is reaped.
            Some(failure) if self.has_others(program) => (failure, self.kill_session(program)),
            Some(failure) => (failure, 0),
            None => {
                self.kill_session(program);
                (CommandResult::TimedOut, 0)
            }
        };
        // One that has not ended yet is reaped before the next request.
        let _ = waitpid(program, Some(WaitPidFlag::WNOHANG));
        (end, killed)
    }

    /// Waits until a program has ended, and reads its output. `None`: it still ran at the limit or at the daemon's end.
    fn wait(&mut self, program: Pid, limit: Duration) -> Option<CommandResult> {
        let deadline = Instant::now() + limit;
        loop {
            let end = peek(program);
            let left = deadline.saturating_duration_since(Instant::now());
            if end.is_some() || left.is_zero() || (self.poll(Some(left)) && self.is_abandoned()) {
                return end;
            }
            self.read_output();
            // Reaps orphans.
            self.has_others(program);
        }
    }

    /// Returns whether children other than a program still run, or the kernel has no list of them.
    fn has_others(&self, program: Pid) -> bool {
        self.others(program).is_none_or(|others| !others.is_empty())
    }

    /// Returns the children other than a program that still run, and reaps the rest. `None`: the kernel has no list.
    fn others(&self, program: Pid) -> Option<Vec<Pid>> {
        let (mut list, mut text) = (self.list.as_ref()?, String::new());
        list.rewind().and_then(|()| list.read_to_string(&mut text)).ok()?;
        let others = text.split_whitespace().filter_map(|pid| pid.parse().ok().map(Pid::from_raw));
        let is_alive =
            |pid: &Pid| waitpid(*pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
        Some(others.filter(|pid| *pid != program && is_alive(pid)).collect())
    }

    /// Kills a session, and waits until it has ended, for at most [`KILL_GRACE`]. Returns how many processes it had besides its
    /// leader.
    fn kill_session(&self, leader: Pid) -> u32 {
        // The leader's group first, at once: no member may act on another's end. A process that has ended needs no signal.
        let _ = killpg(leader, Signal::SIGKILL);
        let mut killed = kill_members(leader);
        // /proc may hide those of other users (`hidepid` of `proc(5)`). Without its parent, each is a child of this process.
        let deadline = Instant::now() + KILL_GRACE;
        loop {
            let mut left = self.others(leader).unwrap_or_default();
            left.retain(|pid| getsid(Some(*pid)) == Ok(leader));
            for pid in &left {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            killed.extend(&left);
            let has_ended = peek(leader).is_some() && left.is_empty();
            if has_ended || !self.wait_child(deadline) {
                killed.remove(&leader);
                return killed.len().try_into().unwrap_or(u32::MAX);
            }
        }
    }

    /// Waits until a child has ended. Returns `false` at the deadline.
    fn wait_child(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut children = [PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
        let has_ended = ppoll(&mut children, Some(left.into()), None) == Ok(1);
        while matches!(signals::next(&self.children), Ok(Some(_))) {}
        has_ended
    }

    /// Returns whether the daemon has exited. Discards a request, which only a compromised daemon sends during a run.
    fn is_abandoned(&self) -> bool {
        let is_end = |errno| !is_temporary(errno);
        let receive = |flags| recv(self.channel.as_raw_fd(), &mut [0; 8], flags);
        match receive(MsgFlags::MSG_PEEK) {
            Ok(0) => true,
            // Without the memory for it, it is discarded later.
            Ok(_) => receive(MsgFlags::empty()).is_err_and(is_end),
            Err(errno) => is_end(errno),
        }
    }

    /// Waits until there is something to read, or a child has ended. Returns whether the channel is readable.
    fn poll(&self, limit: Option<Duration>) -> bool {
        let mut fds = [self.channel.as_fd(), self.reader.as_fd(), self.children.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // After an error nothing is readable, and the caller polls again.
        let _ = ppoll(&mut fds, limit.map(Into::into), None);
        // `waitid` shows which child has ended.
        while matches!(signals::next(&self.children), Ok(Some(_))) {}
        fds[0].any() == Some(true)
    }

    /// Reads output, up to the capacity of a pipe, so that endless output does not block the helper. The error is that the pipe
    /// is empty.
    fn read_output(&mut self) {
        let _ = (&self.reader).take(PIPE_CAPACITY).read_to_end(&mut self.output);
        self.output.truncate(MAX_OUTPUT);
    }

    /// Reads on after the daemon's end, until a signal, or until the hook's background processes have closed the pipe.
    fn discard_rest(self) {
        let Self { mut reader, channel, writer, .. } = self;
        drop((channel, writer));
        // Readers of the daemon's output must see its end. No process is left to report an error to.
        let _ = drop_standard_streams();
        // One that was sent to every process of this program may be pending since long ago.
        signals::discard_pending();
        signals::reap();
        signals::unblock();
        let _ = fcntl(&reader, FcntlArg::F_SETFL(OFlag::empty()));
        let _ = io::copy(&mut reader, &mut io::sink());
    }
}

/// Returns how a child has ended, if so, without reaping it. nix does not know the numbers of real-time signals.
fn peek(child: Pid) -> Option<CommandResult> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeroes are a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { zeroed() };
    // SAFETY: the pointer is valid for the call, which fails only for a process that is no child.
    unsafe { libc::waitid(libc::P_PID, child.as_raw().unsigned_abs(), &raw mut info, flags) };
    // SAFETY: the call has set both fields, or left them zero.
    let (pid, number) = unsafe { (info.si_pid(), info.si_status()) };
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    let exited = info.si_code == libc::CLD_EXITED;
    (pid != 0).then_some(if exited {
        CommandResult::Exited(number)
    } else {
        CommandResult::Signalled(number)
    })
}

/// Kills the processes of a session that /proc shows. Returns them.
fn kill_members(session: Pid) -> BTreeSet<Pid> {
    let mut killed = BTreeSet::new();
    for (pid, directory) in session_members(session) {
        killed.insert(pid);
        // Linux 5.1. The pid may be another process's by now.
        let (call, fd, none) =
            (libc::SYS_pidfd_send_signal, directory.as_raw_fd(), ptr::null::<u8>());
        // SAFETY: the null pointer stands for no information about the signal.
        let sent = NixErrno::result(unsafe { libc::syscall(call, fd, libc::SIGKILL, none, 0) });
        if sent == Err(NixErrno::ENOSYS) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
    killed
}

/// Returns the processes of a session and their directories in `/proc`: also those that have just been killed. A process that
/// cannot be read has ended.
fn session_members(session: Pid) -> impl Iterator<Item = (Pid, File)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let directory = File::open(process.path()).ok()?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut stat = Vec::new();
        let mut file = File::from(openat(&directory, c"stat", flags, Mode::empty()).ok()?);
        file.read_to_end(&mut stat).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // After the name, of any characters: state, parent, group, session (`proc_pid_stat(5)`).
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_member = fields.nth(3)?.parse() == Ok(session.as_raw());
        is_member.then(|| (Pid::from_raw(pid), directory))
    })
}
