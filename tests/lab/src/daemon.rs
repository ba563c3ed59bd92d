//! A running keepwatch.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::libc::{SYS_epoll_pwait, c_long};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::unistd::Pid;

use crate::PATIENCE;
use crate::ending::{Deadline, Watched, pidfd};
use crate::files::{Directory, Watch, content, wait_readable};
use crate::log::Lines;
use crate::received::Late;

/// The files of one keepwatch, and how it is started.
#[derive(Debug)]
pub struct Setup {
    /// The program's file.
    pub program: PathBuf,
    /// The program with its symbols: `KEEPWATCH_SYMBOLS` if that is set.
    #[cfg(feature = "defmt")]
    pub symbols: PathBuf,
    #[cfg(feature = "defmt")]
    decoder: std::sync::OnceLock<Option<crate::frames::Decoder>>,
    directory: Directory,
    /// Contains the state file and the log.
    pub conf_dir: PathBuf,
    /// Contains the agent's socket.
    pub state_path: PathBuf,
    /// The router's identity.
    pub router: String,
    /// The interface to watch.
    pub interface: String,
    /// The VIP to watch for.
    pub vip: String,
    /// More options.
    pub extra: Vec<OsString>,
    /// More environment variables.
    pub environment: Vec<(OsString, OsString)>,
    pub(crate) lines: Lines,
}

/// Stands for a frame that cannot be decoded.
pub(crate) const DAMAGED_FRAME: &str = "(damaged frame)\n";

impl Setup {
    /// Watches `ha0` for 169.254.0.5/24.
    ///
    /// The environment variable `KEEPWATCH` replaces `program` by another build, or by a script that runs one built for
    /// another machine.
    pub fn new(program: impl AsRef<Path>) -> Self {
        let directory = Directory::new();
        let built = env::var_os("KEEPWATCH").map_or(program.as_ref().into(), PathBuf::from);
        Self {
            program: built.canonicalize().expect("the program"),
            #[cfg(feature = "defmt")]
            symbols: env::var_os("KEEPWATCH_SYMBOLS")
                .map_or_else(|| program.as_ref().into(), PathBuf::from),
            #[cfg(feature = "defmt")]
            decoder: std::sync::OnceLock::new(),
            conf_dir: directory.sub("conf"),
            state_path: directory.sub("agent"),
            directory,
            router: "3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11".into(),
            interface: "ha0".into(),
            vip: "169.254.0.5/24".into(),
            extra: Vec::new(),
            environment: Vec::new(),
            lines: Lines::default(),
        }
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, option: impl Into<OsString>) -> Self {
        self.extra.push(option.into());
        self
    }

    /// Returns the directory that contains the others.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn state_file(&self) -> PathBuf {
        self.conf_dir.join("state")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.directory.path().join("router.monitor.pid")
    }

    pub fn log_file(&self) -> PathBuf {
        self.conf_dir.join("neutron-keepalived-state-change.log")
    }

    /// Returns the state file's content.
    pub fn state(&self) -> String {
        content(&self.state_file())
    }

    /// Returns a log as text, decoded if it consists of frames, of which none may be damaged.
    pub fn text(&self, log: Vec<u8>) -> String {
        let text = self.text_of_damaged(log);
        assert!(!text.contains(DAMAGED_FRAME), "{text}");
        text
    }

    /// Returns a log as text, decoded if it consists of frames, in which a full disk may have cut some.
    #[cfg(not(feature = "defmt"))]
    pub fn text_of_damaged(&self, log: Vec<u8>) -> String {
        String::from_utf8(log).expect("a log of text")
    }

    /// Returns a log as text, decoded if it consists of frames, in which a full disk may have cut some.
    #[cfg(feature = "defmt")]
    pub fn text_of_damaged(&self, log: Vec<u8>) -> String {
        let decoder = self.decoder.get_or_init(|| crate::frames::Decoder::of(&self.symbols));
        match decoder {
            Some(decoder) => decoder.text(&log),
            None => String::from_utf8(log).expect("a log of text"),
        }
    }

    /// Returns the command that starts it, in the option style of Neutron's agent.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--router_id={}", self.router))
            .arg(format!("--monitor_interface={}", self.interface))
            .arg(format!("--monitor_cidr={}", self.vip))
            .arg(format!("--conf_dir={}", self.conf_dir.display()))
            .arg(format!("--state_path={}", self.state_path.display()))
            .arg(format!("--pid_file={}", self.pid_file().display()))
            .arg(format!("--log-file={}", self.log_file().display()))
            .args(&self.extra)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Returns the command behind words that have it run, such as `unshare --pid --fork`.
    pub fn command_behind(&self, words: &[&str]) -> Command {
        let (mut command, own) = (Command::new(words[0]), self.command());
        command.args(&words[1..]).arg(own.get_program()).args(own.get_args());
        command
    }

    /// Runs the command to its end.
    pub fn run(&self) -> Output {
        self.command().output().expect("to start keepwatch")
    }

    /// Runs `--check`. Returns the exit code, and the output with the error at its end.
    pub fn check(&self) -> (Option<i32>, String) {
        let output = self.command().arg("--check").output().expect("to start keepwatch");
        let report = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(report).expect("a report of text"))
    }

    /// Starts it in the foreground, without waiting until it is up.
    pub fn spawn(&self) -> Running<'_> {
        self.attend(self.command().arg("--foreground").spawn().expect("to start keepwatch"))
    }

    /// Takes over a child that runs in the foreground.
    pub fn attend(&self, child: Child) -> Running<'_> {
        Running::new(self, child.id(), Some(child))
    }

    /// Starts it in the foreground and waits for its first state.
    pub fn start(&self) -> Running<'_> {
        let _ = std::fs::remove_file(self.state_file());
        let running = self.spawn();
        running.wait_state_file("any state", |state| !state.is_empty());
        running
    }

    /// Starts it as a daemon and waits until it is up.
    pub fn daemonize(&self) -> Running<'_> {
        self.adopt(&self.run())
    }

    /// Does so with a changed command.
    pub fn daemonize_with(&self, change: impl FnOnce(&mut Command)) -> Running<'_> {
        let mut command = self.command();
        change(&mut command);
        self.adopt(&command.output().expect("to start keepwatch"))
    }

    /// Takes over the daemon that a command has started.
    pub fn adopt(&self, output: &Output) -> Running<'_> {
        assert!(output.status.success(), "{output:?}");
        self.running()
    }

    /// Takes over a running daemon by its pid file.
    pub fn running(&self) -> Running<'_> {
        let pid = content(&self.pid_file());
        Running::new(self, pid.parse().unwrap_or_else(|_| panic!("pid file holds {pid:?}")), None)
    }
}

/// A running keepwatch, which is killed on drop.
#[derive(Debug)]
pub struct Running<'a> {
    pub(crate) setup: &'a Setup,
    pid: u32,
    child: Option<Child>,
    files: Watch,
    watched: Option<Watched>,
}

impl<'a> Running<'a> {
    fn new(setup: &'a Setup, pid: u32, child: Option<Child>) -> Self {
        let files = Watch::new(&setup.conf_dir);
        Self { setup, pid, child, files, watched: Some(Watched::new(pid)) }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the child process of a keepwatch in the foreground.
    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("a keepwatch in the foreground")
    }

    /// Waits until the state file holds this word.
    pub fn wait_state(&self, word: &str) {
        self.wait_state_file(word, |state| state == word);
    }

    fn wait_state_file(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let setup = self.setup;
        let what =
            || format!("{what} in the state file, which has {:?}:\n{}", setup.state(), setup.log());
        self.files.until(Late(what), || condition(&setup.state()).then_some(()));
    }

    /// Returns a description followed by the log as it is when that is displayed.
    pub(crate) fn and_log(&self, what: String) -> impl Display {
        Late(move || format!("{what}:\n{}", self.setup.log()))
    }

    /// Waits until a condition holds, which is evaluated whenever a file in `conf_dir` changes.
    pub fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        self.files.until(self.and_log(what.into()), || condition().then_some(()));
    }

    /// Waits until the daemon has delivered this state to the agent, and sends nothing more.
    pub fn wait_delivered(&self, state: &str) {
        let delivered = format!("state={state} undelivered=none");
        self.wait(&delivered, || self.status().contains(&delivered));
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Lets the daemon end without a failure of the waits for others.
    pub fn allow_end(&mut self) {
        self.watched = None;
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.wait_exit()
    }

    /// Waits for the end. Returns the status if it ran in the foreground.
    pub fn wait_exit(mut self) -> Option<ExitStatus> {
        let ended = pidfd(self.pid).is_none_or(|pidfd| wait_readable(pidfd, PATIENCE));
        assert!(ended, "{}", self.and_log(format!("process {} does not end", self.pid)));
        self.child.take().map(|mut child| child.wait().expect("an exit status"))
    }

    /// Waits until it has nothing left to do: until it sleeps without a timeout, or until its next check of the agent's
    /// socket, which it first does 10 s after a delivery. The patience begins again whenever it works.
    pub fn wait_asleep(&self) {
        let (mut wakes, mut deadline) = (0, Deadline::after(PATIENCE));
        while self.sleeps_for().is_none_or(|millis| millis < 5500) {
            sleep(deadline.nap(&self.and_log("it to sleep".into())).min(Duration::from_millis(5)));
            if wakes != self.wakes() {
                (wakes, deadline) = (self.wakes(), Deadline::after(PATIENCE));
            }
        }
    }

    /// Returns the timeout in milliseconds with which it waits for events, by `/proc/PID/syscall`; `u32::MAX` for none.
    pub fn sleeps_for(&self) -> Option<u32> {
        let call = content(&PathBuf::from(format!("/proc/{}/syscall", self.pid)));
        let mut words = call.split_whitespace();
        let number = words.next().and_then(|number| number.parse().ok());
        let waits = number == Some(SYS_epoll_pwait) || number == SYS_EPOLL_WAIT;
        let timeout = words.nth(3).and_then(|word| u64::from_str_radix(word.get(2..)?, 16).ok());
        timeout.filter(|_| waits).map(|timeout| timeout as u32)
    }

    /// Returns the number of its context switches, voluntary or not.
    pub fn wakes(&self) -> u64 {
        ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
            .map(|field| self.proc_status(field).parse::<u64>().expect("a number"))
            .iter()
            .sum()
    }

    /// Returns its child processes, including zombies.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid)
    }

    /// Returns a copy of its first socket of this type.
    pub fn socket(&self, kind: SockType) -> OwnedFd {
        let process = pidfd(self.pid).expect("a process");
        let copy = |fd: i32| {
            // SAFETY: a system call without pointers, whose result is checked before it is owned.
            unsafe {
                let fd = nix::libc::syscall(nix::libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
                i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
            }
        };
        let is_it = |fd: &OwnedFd| getsockopt(fd, sockopt::SockType) == Ok(kind);
        (3..64).filter_map(copy).find(is_it).expect("a socket of that type")
    }

    /// Returns a field of `/proc/PID/status`.
    pub fn proc_status(&self, field: &str) -> String {
        proc_status(self.pid, field)
    }

    pub(crate) fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.pid.cast_signed())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        } else if let Some(pidfd) = pidfd(self.pid) {
            let _ = kill(self.nix_pid(), Signal::SIGKILL);
            wait_readable(&pidfd, PATIENCE);
        }
        self.setup.collect_unexpected();
    }
}

/// Newer architectures have no `epoll_wait`.
#[cfg(target_arch = "x86_64")]
const SYS_EPOLL_WAIT: Option<c_long> = Some(nix::libc::SYS_epoll_wait);
#[cfg(not(target_arch = "x86_64"))]
const SYS_EPOLL_WAIT: Option<c_long> = None;

/// Sends a signal to a process.
pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("to send a signal");
}

/// Returns the child processes of a process, including zombies.
pub fn children(pid: u32) -> Vec<u32> {
    let list = content(&PathBuf::from(format!("/proc/{pid}/task/{pid}/children")));
    list.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

/// Returns a field of `/proc/PID/status`.
pub fn proc_status(pid: u32, field: &str) -> String {
    let status = content(&PathBuf::from(format!("/proc/{pid}/status")));
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {status}")).trim().into()
}

/// Waits until a process has ended.
pub fn wait_end(pid: u32) {
    if let Some(pidfd) = pidfd(pid) {
        let ended = wait_readable(&pidfd, PATIENCE);
        assert!(ended, "process {pid}, {}, does not end", proc_status(pid, "Name"));
    }
}
