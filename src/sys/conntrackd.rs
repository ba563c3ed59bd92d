//! A process of its own that keeps the privileges conntrackd's control socket wants, and runs nothing
//! but conntrackd's sync commands.
//!
//! It is forked before the daemon opens anything and before it drops its privileges. The daemon itself
//! starts no process, so its seccomp filter need not allow that.

#![expect(unsafe_code, reason = "fork and posix_spawn")]

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::time::Duration;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, Signal, killpg, signal};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, read};

use crate::core::{Command, CommandEnd};
use crate::errno::Errno;
use crate::wire::conntrackd::{answer, answered, ask, asked};

/// A command that has not ended after this is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The daemon's end of it.
#[derive(Debug)]
pub struct Conntrackd {
    channel: OwnedFd,
    /// What the commands print.
    output: OwnedFd,
}

/// What came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The command has ended.
    Ended(CommandEnd),
    /// The process has.
    Gone,
}

impl Conntrackd {
    /// Forks the process, which runs `PROGRAM -C CONFIG FLAG`.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn fork(program: &Path, config: &Path) -> Result<Self, Errno> {
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let program = c_string(program).map_err(|_| Known::EINVAL)?;
        let config = c_string(config).map_err(|_| Known::EINVAL)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let (channel, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let (output, input) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            let served = serve(&program, &config, &theirs, &input);
            // SAFETY: ends this process, and runs nothing of what it has inherited.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        // The commands are to block on it, but not the daemon.
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // Whenever it ends, nobody has to wait for it.
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        Ok(Self { channel, output })
    }

    /// Asks for a command, when no other is under way.
    ///
    /// # Errors
    /// The errno of `send`, if the process has gone.
    pub fn run(&self, command: Command) -> Result<(), Errno> {
        send(self.channel.as_raw_fd(), &ask(command), MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// What has come from it. None: nothing yet.
    pub fn answer(&self) -> Option<Answer> {
        let mut bytes = [0; 4];
        match recv(self.channel.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Err(Known::EAGAIN) => None,
            // The end of the channel is an empty answer.
            Ok(length) => {
                let end = bytes.get(..length).and_then(answered);
                Some(end.map_or(Answer::Gone, Answer::Ended))
            }
            Err(_) => Some(Answer::Gone),
        }
    }

    /// What the commands have printed: a piece of a line, or several lines.
    pub fn output<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let length = read(&self.output, buffer).ok()?;
        buffer.get(..length).filter(|output| !output.is_empty())
    }

    /// The descriptors to poll: of the channel, and of the output.
    pub fn fds(&self) -> [RawFd; 2] {
        [self.channel.as_raw_fd(), self.output.as_raw_fd()]
    }
}

/// In the process: runs what is asked for, one command after another, until the daemon has gone.
fn serve(program: &CStr, config: &CStr, channel: &OwnedFd, output: &OwnedFd) -> nix::Result<()> {
    for fd in 3..64 {
        if ![channel.as_raw_fd(), output.as_raw_fd()].contains(&fd) {
            // SAFETY: these are this process's copies, and it uses none of them.
            unsafe { libc::close(fd) };
        }
    }
    // Signals to the group are for the daemon; when that has gone, the channel tells.
    SigSet::all().thread_set_mask()?;
    nix::sys::prctl::set_no_new_privs()?;
    let spawn = Spawn::new(output)?;
    loop {
        let mut request = [0; 2];
        let length = recv(channel.as_raw_fd(), &mut request, MsgFlags::empty())?;
        let Some(command) = request.get(..length).and_then(asked) else { return Ok(()) };
        let end = spawn.run(program, config, command);
        send(channel.as_raw_fd(), &answer(end), MsgFlags::MSG_NOSIGNAL)?;
    }
}

/// How commands are started, made beforehand.
struct Spawn {
    actions: libc::posix_spawn_file_actions_t,
    attributes: libc::posix_spawnattr_t,
    /// Their standard input.
    _null: OwnedFd,
}

impl Spawn {
    fn new(output: &OwnedFd) -> nix::Result<Self> {
        let null = open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let mut actions = MaybeUninit::uninit();
        let mut attributes = MaybeUninit::uninit();
        let (none, all) = (SigSet::empty(), SigSet::all());
        let flags = libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF
            | libc::POSIX_SPAWN_SETPGROUP;
        let flags = libc::c_short::try_from(flags).map_err(|_| Known::EINVAL)?;
        // SAFETY: both are initialised before anything else is done with them, and the signal sets
        // are valid. The functions return an errno.
        unsafe {
            let (actions, attributes) = (actions.as_mut_ptr(), attributes.as_mut_ptr());
            done(libc::posix_spawn_file_actions_init(actions))?;
            for (from, to) in
                [(null.as_raw_fd(), 0), (output.as_raw_fd(), 1), (output.as_raw_fd(), 2)]
            {
                done(libc::posix_spawn_file_actions_adddup2(actions, from, to))?;
            }
            done(libc::posix_spawnattr_init(attributes))?;
            done(libc::posix_spawnattr_setflags(attributes, flags))?;
            done(libc::posix_spawnattr_setsigmask(attributes, none.as_ref()))?;
            done(libc::posix_spawnattr_setsigdefault(attributes, all.as_ref()))?;
            done(libc::posix_spawnattr_setpgroup(attributes, 0))?;
        }
        // SAFETY: initialised above.
        let (actions, attributes) = unsafe { (actions.assume_init(), attributes.assume_init()) };
        Ok(Self { actions, attributes, _null: null })
    }

    /// Runs a command to its end. Allocates nothing.
    fn run(&self, program: &CStr, config: &CStr, command: Command) -> CommandEnd {
        let words = [program, c"-C", config, command.flag()];
        let [name, option, file, flag] = words.map(|word| word.as_ptr().cast_mut());
        let argv = [name, option, file, flag, null_mut()];
        let path = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let environment = [path.as_ptr().cast_mut(), null_mut()];
        let mut pid = 0;
        // SAFETY: the program, the arguments and the environment are strings that live until the call
        // returns, in arrays that end with null; the kernel does not write to them.
        let spawned = unsafe {
            done(libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                &raw const self.actions,
                &raw const self.attributes,
                argv.as_ptr(),
                environment.as_ptr(),
            ))
        };
        match spawned {
            Ok(()) => wait(Pid::from_raw(pid)),
            Err(errno) => CommandEnd::NotStarted(errno.into()),
        }
    }
}

/// The functions of `posix_spawn` return an errno, not -1.
fn done(errno: libc::c_int) -> nix::Result<()> {
    if errno == 0 { Ok(()) } else { Err(Known::from_raw(errno)) }
}

/// Waits for a command's end. If it takes too long, all of its process group is killed.
fn wait(pid: Pid) -> CommandEnd {
    let mut child_ended = SigSet::empty();
    child_ended.add(Signal::SIGCHLD);
    let patience = TimeSpec::from_duration(PATIENCE);
    // The signal is blocked, so one that came before the call is not missed.
    // SAFETY: both pointers are valid, and nothing is to be told of the signal.
    let waited = unsafe { libc::sigtimedwait(child_ended.as_ref(), null_mut(), patience.as_ref()) };
    let hangs = waited < 0 && Known::last() == Known::EAGAIN;
    if hangs {
        // If it has ended at the last moment, so much the better.
        let _ = killpg(pid, Signal::SIGKILL);
    }
    match waitpid(pid, None) {
        _ if hangs => CommandEnd::TimedOut,
        Ok(WaitStatus::Exited(_, code)) => {
            CommandEnd::Exited(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            CommandEnd::Signalled(u8::try_from(signal as i32).unwrap_or(u8::MAX))
        }
        Ok(_) => CommandEnd::Exited(u8::MAX),
        Err(errno) => CommandEnd::NotStarted(errno.into()),
    }
}
