//! Running a program: within a time limit, what it prints within a budget, and killed with its process
//! group, in which it leaves nobody behind.

#![expect(unsafe_code, reason = "fork, execve, waitid and memory that processes share")]

use core::mem::{MaybeUninit, size_of};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, Ordering};
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, getpid, getppid};
use nix::unistd::{pipe2, read, setpgid};

use crate::errno::Errno;
use crate::monitor::{CommandResult, Duration, Instant, Output};
use crate::sys::clock;
use crate::sys::signals::{self, Signals};
use crate::wire::helper::{decode_result, encode_result};

/// How long to wait for a killed program, which may be stuck in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// The most words of a command line, or of an environment.
const MAX_WORDS: usize = 8;

const PATH: &CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Sent when the supervising process was killed.
const ORPHANED: Signal = Signal::SIGUSR1;

/// What to run, and how.
pub struct Program<'a> {
    /// The program.
    pub path: &'a CStr,
    /// The command line, its name included.
    pub words: &'a [&'a CStr],
    /// The environment beside `PATH`.
    pub environment: &'a [CString],
    /// It is killed after this.
    pub timeout: Duration,
    /// Called in the new process before it executes the program.
    pub confine: &'a dyn Fn() -> Result<(), CommandResult>,
}

/// What outlives the process that runs programs, for the one that restarts it.
pub struct Shared {
    /// The process group of the program that runs, as long as its number cannot be anybody else's.
    group: AtomicI32,
    /// The number of the request under way, and a bit.
    under_way: AtomicI32,
    /// Why the program was not even started, as in a message; 0: it was.
    failure: AtomicI32,
}

/// There is a request under way.
const UNDER_WAY: i32 = 0x100;

impl Shared {
    /// Memory that this process shares with those that it forks.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn new() -> nix::Result<&'static Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory, wherever that be.
        let memory = unsafe { libc::mmap(null_mut(), size_of::<Self>(), protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(NixErrno::last());
        }
        // SAFETY: it is large enough, aligned to a page, never unmapped, and zeroes are a valid value.
        Ok(unsafe { &*memory.cast::<Self>() })
    }

    /// Notes that a request is under way.
    pub fn begin(&self, number: u8) {
        self.under_way.store(UNDER_WAY | i32::from(number), Ordering::SeqCst);
    }

    /// Notes that it has been answered.
    pub fn end(&self) {
        self.under_way.store(0, Ordering::SeqCst);
    }

    /// The process group of the program that runs.
    pub fn group(&self) -> Option<libc::pid_t> {
        Some(self.group.load(Ordering::SeqCst)).filter(|group| *group > 0)
    }

    /// After the end of the process that ran a program: kills what is left of that. Tells the number of
    /// the request that was under way.
    pub fn clear(&self) -> Option<u8> {
        let group = self.group.swap(0, Ordering::SeqCst);
        if group > 0 {
            // It has become a child of the present process, which has not waited for it yet.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let under_way = self.under_way.swap(0, Ordering::SeqCst);
        u8::try_from(under_way & !UNDER_WAY).ok().filter(|_| under_way != 0)
    }
}

/// What runs programs, one at a time.
pub struct Runner {
    shared: &'static Shared,
    /// Who restarts this process.
    parent: Pid,
    /// The end of a child, and of the parent.
    ends: Signals,
    /// The programs' standard input.
    null: OwnedFd,
}

impl Runner {
    /// To be made by a process that blocks all signals.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn new(shared: &'static Shared, parent: Pid) -> nix::Result<Self> {
        prctl::set_pdeathsig(ORPHANED)?;
        let ends = Signals::of([Signal::SIGCHLD, ORPHANED].into_iter().collect());
        let ends = ends.map_err(|Errno(errno)| NixErrno::from_raw(errno))?;
        let null = open(c"/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { shared, parent, ends, null })
    }

    /// Whether nobody would restart this process.
    pub fn is_orphaned(&self) -> bool {
        getppid() != self.parent
    }

    /// Sleeps until there is something to read, or a process has ended.
    pub fn sleep(&self, fd: BorrowedFd<'_>) {
        self.wait(Some(fd), None, None);
    }

    /// Runs a program to its end, and hands over the lines that it prints. Tells how it ended, and how
    /// much of its output was thrown away. None: whoever asked for it has gone, which this channel tells,
    /// over which nothing comes before the answer.
    pub fn run(
        &self,
        program: &Program<'_>,
        channel: BorrowedFd<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<(CommandResult, u32)> {
        // Those that took too long to die.
        // SAFETY: there is nothing to be told of them.
        while unsafe { libc::waitpid(-1, null_mut(), libc::WNOHANG) } > 0 {}
        let (child, pipe) = match self.start(program) {
            Ok(started) => started,
            Err(errno) => return Some((CommandResult::NotStarted(errno.into()), 0)),
        };
        let (mut pipe, mut output) = (Some(pipe), Output::default());
        let deadline = clock::now() + program.timeout;
        let mut gone = false;
        while !gone && !has_ended(child) && clock::now() < deadline {
            gone = self.wait(Some(channel), pipe.as_ref().map(OwnedFd::as_fd), Some(deadline));
            drain(&mut pipe, &mut output, 1, each);
        }
        // If it has ended at the last moment, so much the better.
        let hangs = !has_ended(child);
        // Nobody has waited for it, so the number is its own.
        if look_at(child).is_some() {
            let _ = killpg(child, Signal::SIGKILL);
        }
        let dead_by = clock::now() + KILL_GRACE;
        while !has_ended(child) && clock::now() < dead_by {
            self.wait(None, None, Some(dead_by));
        }
        self.shared.group.store(0, Ordering::SeqCst);
        let end = reap(child);
        // Nobody is left to print more than what fits into the pipe.
        drain(&mut pipe, &mut output, READS_OF_A_PIPE, each);
        let dropped = output.end(each);
        let [.., kind, value] = self.shared.failure.load(Ordering::SeqCst).to_be_bytes();
        let failure = decode_result(kind, value).filter(|_| kind != 0);
        let end = if hangs { CommandResult::TimedOut } else { failure.unwrap_or(end) };
        (!gone).then_some((end, dropped))
    }

    /// Starts it. Tells its pid, which is its group's too, and where its output comes from.
    fn start(&self, program: &Program<'_>) -> nix::Result<(Pid, OwnedFd)> {
        let (pipe, input) = pipe2(OFlag::O_CLOEXEC)?;
        let mut nonblocking: c_int = 1;
        // SAFETY: the kernel reads an int.
        unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONBIO, &raw mut nonblocking) };
        self.shared.failure.store(0, Ordering::SeqCst);
        let runner = getpid();
        // SAFETY: the process has one thread.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let failure = self.become_program(program, &input, runner);
                let [kind, value] = encode_result(failure);
                let failure = i32::from_be_bytes([0, 0, kind, value]);
                self.shared.failure.store(failure, Ordering::SeqCst);
                // SAFETY: ends this process, and runs nothing of what it has inherited.
                unsafe { libc::_exit(127) }
            }
            ForkResult::Parent { child } => {
                // Whoever comes first. It fails if the program runs already.
                let _ = setpgid(child, child);
                self.shared.group.store(child.as_raw(), Ordering::SeqCst);
                Ok((child, pipe))
            }
        }
    }

    /// In the new process. Returns only if it fails.
    fn become_program(
        &self,
        program: &Program<'_>,
        output: &OwnedFd,
        runner: Pid,
    ) -> CommandResult {
        let not_started = |errno: NixErrno| CommandResult::NotStarted(errno.into());
        let own = Pid::from_raw(0);
        let prepared = setpgid(own, own)
            .and_then(|()| dup2_stdin(&self.null))
            .and_then(|()| dup2_stdout(output))
            .and_then(|()| dup2_stderr(output))
            .map_err(not_started)
            .and_then(|()| (program.confine)())
            // Changing the user would have undone it.
            .and_then(|()| prctl::set_pdeathsig(Signal::SIGKILL).map_err(not_started));
        if let Err(failure) = prepared {
            return failure;
        }
        if getppid() != runner {
            return CommandResult::Aborted;
        }
        signals::reset();
        signals::unblock();
        let words = pointers(program.words.iter().copied());
        let environment =
            pointers([PATH].into_iter().chain(program.environment.iter().map(CString::as_c_str)));
        // SAFETY: the path, the words and the environment are strings, the latter in arrays that end with
        // null.
        unsafe { libc::execve(program.path.as_ptr(), words.as_ptr(), environment.as_ptr()) };
        not_started(NixErrno::last())
    }

    /// Waits until there is something to read from one of these, or a process has ended, at most until the
    /// deadline. Tells whether there is from the first.
    fn wait(
        &self,
        channel: Option<BorrowedFd<'_>>,
        pipe: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> bool {
        let of = |fd: Option<BorrowedFd<'_>>| {
            // Negative numbers are passed over.
            let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
            libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
        };
        let mut fds = [of(channel), of(pipe), of(Some(self.ends.as_fd()))];
        let timeout = deadline.map_or(-1, |deadline| {
            let now = clock::now();
            // Rounded up, as what is due is looked at only afterwards.
            let left = if deadline > now { (deadline - now).total_millis() + 1 } else { 0 };
            c_int::try_from(left).unwrap_or(c_int::MAX)
        });
        // SAFETY: the kernel reads and writes the three of them. If it is interrupted there is nothing to
        // read.
        unsafe { libc::poll(fds.as_mut_ptr(), 3, timeout) };
        // It matters that somebody has ended, not who.
        while self.ends.next().is_some() {}
        fds.first().is_some_and(|channel| channel.revents != 0)
    }
}

/// Where the words are, and null behind them.
fn pointers<'a>(words: impl Iterator<Item = &'a CStr>) -> [*const c_char; MAX_WORDS + 1] {
    let mut pointers = [null(); MAX_WORDS + 1];
    for (place, word) in pointers.iter_mut().zip(words.take(MAX_WORDS)) {
        *place = word.as_ptr();
    }
    pointers
}

/// As much as fits into a pipe.
const READS_OF_A_PIPE: usize = (1 << 16) / size_of::<Buffer>();

type Buffer = [u8; 4096];

/// Reads what has been printed, at most so many times, and closes the pipe at its end or if there would be
/// none.
fn drain(
    pipe: &mut Option<OwnedFd>,
    output: &mut Output,
    times: usize,
    each: &mut dyn FnMut(&[u8]),
) {
    let mut buffer: Buffer = [0; 4096];
    for _ in 0..times {
        let Some(open) = pipe else { return };
        match read(open, &mut buffer) {
            Ok(length @ 1..) => output.push(buffer.get(..length).unwrap_or_default(), &mut *each),
            Err(NixErrno::EAGAIN) => return,
            Ok(_) | Err(_) => *pipe = None,
        }
        if output.is_boundless() {
            *pipe = None;
        }
    }
}

/// Whether there is nothing more to come of a child.
fn has_ended(child: Pid) -> bool {
    look_at(child).unwrap_or(true)
}

/// Whether a child has ended. It is not waited for by this, so its number remains its own. None: there is
/// no such child.
fn look_at(child: Pid) -> Option<bool> {
    let id = libc::id_t::try_from(child.as_raw()).ok()?;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes a `siginfo_t`.
    let looked = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), how) };
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote, of a child if of anybody.
    (looked == 0).then(|| unsafe { info.assume_init().si_pid() } != 0)
}

/// Waits for a child that has ended, and for no other.
fn reap(child: Pid) -> CommandResult {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    if unsafe { libc::waitpid(child.as_raw(), &raw mut status, libc::WNOHANG) } <= 0 {
        return CommandResult::TimedOut;
    }
    let byte = |number: c_int| u8::try_from(number).unwrap_or(u8::MAX);
    if libc::WIFSIGNALED(status) {
        CommandResult::Signalled(byte(libc::WTERMSIG(status)))
    } else {
        CommandResult::Exited(byte(libc::WEXITSTATUS(status)))
    }
}
