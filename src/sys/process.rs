//! Becoming a daemon, and telling whoever started it that it is up.

#![expect(unsafe_code, reason = "fork, and what the C library gives")]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::env;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::absolute;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{
    ForkResult, Pid, alarm, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid, write,
};

use super::file_id::identify_open;
use super::files::{c_path, read_to_end};
use super::signals::{self, Signals};
use crate::errno::Errno;

/// What the daemon writes into the pipe to its parent once it is up. Anything else is an error message.
const UP: &str = "up";

/// Who waits for readiness.
#[derive(Debug)]
pub enum ReadinessNotifier {
    /// The process that forked the daemon, at the other end of this pipe.
    Parent(OwnedFd),
    /// A service manager, by its notification socket (`sd_notify(3)`).
    Manager(OwnedFd),
    /// Nobody, or nobody any more.
    Nobody,
}

/// The parent's side of the start.
#[derive(Debug)]
pub struct Waiting {
    pipe: OwnedFd,
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

/// Does what Rust's own start would do: resets signals and ignores SIGPIPE, so that writes fail with EPIPE,
/// and opens standard streams that are closed, so that nothing else gets their numbers. Returns the arguments
/// behind the program's name.
///
/// # Errors
/// One line, if memory cannot be protected, or if a stream is closed and there is no `/dev/null` to put in
/// its place.
///
/// # Safety
/// To be called once, before anything else, with what the C library gave `main`.
pub unsafe fn init_runtime(
    count: c_int,
    words: *const *const c_char,
) -> Result<Vec<OsString>, String> {
    signals::init();
    #[cfg(target_env = "musl")]
    super::relro::protect().map_err(|errno| format!("read-only memory: {errno}"))?;
    for fd in 0..=2 {
        // SAFETY: if it is not open, the kernel says so.
        if identify_open(&unsafe { BorrowedFd::borrow_raw(fd) }) == Err(NixErrno::EBADF.into()) {
            // The lowest number that is free is the one it gets.
            let null = open(c"/dev/null", OFlag::O_RDWR, Mode::empty());
            let _ =
                null.map_err(|errno| format!("/dev/null: {}", Errno::from(errno)))?.into_raw_fd();
        }
    }
    let count = usize::try_from(count).unwrap_or_default();
    // SAFETY: the caller says that there are so many strings.
    let words = unsafe { core::slice::from_raw_parts(words, count) };
    // SAFETY: as above.
    unsafe { remember_command_line(words) };
    // SAFETY: as above.
    let copy = |word: &*const c_char| unsafe { CStr::from_ptr(*word) };
    let words = words.iter().skip(1).map(copy);
    Ok(words.map(|word| OsStr::from_bytes(word.to_bytes()).into()).collect())
}

/// Prints to standard output. A reader that has gone away is no failure of ours.
pub fn print(text: &str) {
    // SAFETY: open since the start, and never closed.
    write_all(unsafe { BorrowedFd::borrow_raw(libc::STDOUT_FILENO) }, text);
}

/// Prints an error to standard error.
pub fn print_error(error: &str) {
    write_all(std::io::stderr().as_fd(), &format!("keepwatch: {error}\n"));
}

/// As far as it is taken.
fn write_all(file: BorrowedFd<'_>, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match write(file, rest) {
            Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
            Err(NixErrno::EINTR) => {}
            _ => return,
        }
    }
}

/// Runs `work` in a child process, which is killed after so many seconds whatever it waits for, or when this
/// process ends. Returns its exit code, or `None` if it was killed.
///
/// # Errors
/// The errno of `fork(2)` or `waitpid(2)`.
pub fn run_limited(seconds: c_uint, work: impl FnOnce() -> c_int) -> Result<Option<c_int>, Errno> {
    // SAFETY: the process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            alarm::set(seconds);
            let code = work();
            // SAFETY: ends this process, and runs nothing of what the other has inherited.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            signals::unblock();
            match waitpid(child, None)? {
                WaitStatus::Exited(_, code) => Ok(Some(code)),
                _ => Ok(None),
            }
        }
    }
}

/// Closes every descriptor but the standard streams: whoever starts the daemon may have left some
/// open, and would wait for the end of a pipe as long as the daemon holds it.
///
/// To be called before anything else is opened.
pub fn close_inherited() {
    close(3, RawFd::MAX);
}

/// In a process just forked: closes every descriptor but the standard streams and this one.
pub(super) fn close_all_but(fd: BorrowedFd<'_>) {
    close(3, fd.as_raw_fd() - 1);
    close(fd.as_raw_fd() + 1, RawFd::MAX);
}

/// Closes these, and whatever is between them, which nobody in this process is to use any more.
fn close(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: they are used no more.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed != 0 {
        // Before Linux 5.9.
        for fd in first..=last.min(1023) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// Calls this process something else, by its name and by its command line: others look for the daemon by
/// that.
pub(super) fn rename(name: &CStr) {
    let _ = prctl::set_name(name);
    let line = COMMAND_LINE.load(Ordering::Relaxed);
    // All but the last byte, which is the end of the last word.
    let length = COMMAND_LINE_LENGTH.load(Ordering::Relaxed).saturating_sub(1);
    let bytes = name.to_bytes().iter().copied().chain(core::iter::repeat(0));
    for (place, byte) in (0..length).zip(bytes) {
        // SAFETY: the memory that the kernel has put the words into, which is this process's own and is
        // nobody's string any more: they have been copied.
        unsafe { line.add(place).write(byte) };
    }
}

/// Where the kernel has put the command line, and how many bytes it has.
static COMMAND_LINE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static COMMAND_LINE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// These are the words that the kernel has put there.
unsafe fn remember_command_line(words: &[*const c_char]) {
    let Some(first) = words.first() else { return };
    let mut end = *first;
    for word in words {
        // One after another, as the kernel puts them.
        if *word == end {
            // SAFETY: it is a string, and the end of it is within or just behind what it is in.
            end = unsafe { word.add(CStr::from_ptr(*word).count_bytes() + 1) };
        }
    }
    COMMAND_LINE.store(first.cast::<u8>().cast_mut(), Ordering::Relaxed);
    COMMAND_LINE_LENGTH.store(end.addr() - first.addr(), Ordering::Relaxed);
}

/// Forks twice, so that the daemon leads no session and belongs to no terminal. It keeps the command
/// line, by which the agent recognises it, and has `/dev/null` for its standard streams.
///
/// # Errors
/// The errno of the step that failed, in one line.
pub fn daemonize() -> Result<ForkSide, String> {
    fork_twice().map_err(|errno| format!("becoming a daemon: {}", Errno::from(errno)))
}

fn fork_twice() -> nix::Result<ForkSide> {
    let (parent_end, daemon_end) = pipe2(OFlag::O_CLOEXEC)?;
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
    let null = open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(ForkSide::Daemon(ReadinessNotifier::Parent(daemon_end)))
}

/// In the parent: waits until the daemon is up. It passes on a signal that ends it, as the daemon is no longer
/// in the terminal's process group.
///
/// # Errors
/// Why it did not come up, in its own words.
pub fn await_daemon(waiting: &Waiting) -> Result<(), String> {
    if let Err(errno) = waiting.wait() {
        return Err(format!("waiting for the daemon: {}", Errno::from(errno)));
    }
    let said = String::from_utf8(read_to_end(waiting.pipe.as_fd())).unwrap_or_default();
    match said.as_str() {
        UP => Ok(()),
        "" => Err("the daemon exited before it was ready".into()),
        _ => Err(said),
    }
}

impl Waiting {
    /// Waits until the daemon has written something. Passes SIGTERM and SIGINT on to it, and ends by them.
    fn wait(&self) -> nix::Result<()> {
        let ending: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        // The others that the daemon handles end this process.
        ending.thread_set_mask()?;
        let signals = Signals::of(ending).map_err(|Errno(errno)| nix::Error::from_raw(errno))?;
        loop {
            let fds = &mut [self.pipe.as_fd(), signals.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno),
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

impl ReadinessNotifier {
    /// The service manager that `NOTIFY_SOCKET` names, or nobody.
    ///
    /// # Errors
    /// The variable and what is wrong with it, in one line.
    pub fn from_environment() -> Result<Self, String> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(Self::Nobody) };
        let open = || {
            let address = if let Some(name) = path.as_bytes().strip_prefix(b"@") {
                UnixAddr::new_abstract(name)?
            } else {
                // The daemon leaves the directory that it was started in.
                let path = absolute(&path).map_err(|_| NixErrno::EINVAL)?;
                UnixAddr::new(c_path(&path)?.as_c_str())?
            };
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
            // Later there may be no right to. A manager that is not there misses nothing.
            let _ = connect(socket.as_raw_fd(), &address);
            Ok(socket)
        };
        open().map(Self::Manager).map_err(|errno: nix::Error| {
            format!("NOTIFY_SOCKET {}: {}", path.display(), Errno::from(errno))
        })
    }

    /// Tells that the daemon is up. Once is enough.
    pub fn ready(&mut self) {
        // A starter that has gone meanwhile misses nothing.
        match core::mem::replace(self, Self::Nobody) {
            Self::Parent(pipe) => write_all(pipe.as_fd(), UP),
            Self::Manager(socket) => {
                let _ = send(socket.as_raw_fd(), b"READY=1", MsgFlags::MSG_NOSIGNAL);
            }
            Self::Nobody => {}
        }
    }

    /// Tells why the daemon does not come up: the parent, which prints it, or standard error.
    pub fn failed(&mut self, error: &str) {
        match self {
            Self::Parent(pipe) => write_all(pipe.as_fd(), error),
            Self::Manager(_) | Self::Nobody => print_error(error),
        }
    }
}
