//! keepwatch as a running program.

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
use crate::heard::Late;
use crate::log::Lines;

/// Where one keepwatch lives, and how it is started.
#[derive(Debug)]
pub struct Setup {
    /// The program's own file.
    pub program: PathBuf,
    /// The program again, with its symbols; what `KEEPWATCH_SYMBOLS` names, if there is that.
    #[cfg(feature = "defmt")]
    pub symbols: PathBuf,
    #[cfg(feature = "defmt")]
    decoder: std::sync::OnceLock<Option<crate::frames::Decoder>>,
    directory: Directory,
    /// The file `state` and the log are here.
    pub conf_dir: PathBuf,
    /// The agent's socket is here.
    pub state_path: PathBuf,
    /// The router's identity.
    pub router: String,
    /// The interface to watch.
    pub interface: String,
    /// The VIP to watch for.
    pub vip: String,
    /// More options.
    pub extra: Vec<OsString>,
    /// More of the environment.
    pub environment: Vec<(OsString, OsString)>,
    pub(crate) lines: Lines,
}

impl Setup {
    /// Watches `ha0` for 169.254.0.5/24.
    ///
    /// What the environment names as `KEEPWATCH` is taken instead of `program`: one that was built
    /// otherwise, or a script that runs one built for another machine.
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

    /// With one more option.
    #[must_use]
    pub fn with(mut self, option: impl Into<OsString>) -> Self {
        self.extra.push(option.into());
        self
    }

    /// A directory beside the others.
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

    /// The state file's content.
    pub fn state(&self) -> String {
        content(&self.state_file())
    }

    /// What the program logs as text, whatever form that has.
    #[cfg(not(feature = "defmt"))]
    pub fn text(&self, log: Vec<u8>) -> String {
        String::from_utf8(log).expect("a log of text")
    }

    /// What the program logs as text, whatever form that has.
    #[cfg(feature = "defmt")]
    pub fn text(&self, log: Vec<u8>) -> String {
        let decoder = self.decoder.get_or_init(|| crate::frames::Decoder::of(&self.symbols));
        match decoder {
            Some(decoder) => decoder.text(&log),
            None => String::from_utf8(log).expect("a log of text"),
        }
    }

    /// The command that starts it, in the option style of Neutron's agent.
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

    /// Runs the command to its end.
    pub fn run(&self) -> Output {
        self.command().output().expect("to start keepwatch")
    }

    /// Has it check everything and change nothing. Returns the exit code, and the report with the error at its end.
    pub fn check(&self) -> (Option<i32>, String) {
        let output = self.command().arg("--check").output().expect("to start keepwatch");
        let report = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(report).expect("a report of text"))
    }

    /// Starts it in the foreground; it need not be up yet.
    pub fn spawn(&self) -> Running<'_> {
        self.attend(self.command().arg("--foreground").spawn().expect("to start keepwatch"))
    }

    /// Takes charge of one that another command has started in the foreground.
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

    /// Starts it as a daemon, which returns when it is up.
    pub fn daemonize(&self) -> Running<'_> {
        self.adopt(&self.run())
    }

    /// Takes charge of the daemon that a command has started.
    pub fn adopt(&self, output: &Output) -> Running<'_> {
        assert!(output.status.success(), "{output:?}");
        self.running()
    }

    /// Takes charge of the one that runs already, by its pid file.
    pub fn running(&self) -> Running<'_> {
        let pid = content(&self.pid_file());
        Running::new(self, pid.parse().unwrap_or_else(|_| panic!("pid file holds {pid:?}")), None)
    }
}

/// A keepwatch that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running<'a> {
    pub(crate) setup: &'a Setup,
    pid: u32,
    child: Option<Child>,
    files: Watch,
    _watched: Watched,
}

impl<'a> Running<'a> {
    fn new(setup: &'a Setup, pid: u32, child: Option<Child>) -> Self {
        let files = Watch::new(&setup.conf_dir);
        Self { setup, pid, child, files, _watched: Watched::new(pid) }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The child process, if it runs in the foreground.
    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("a keepwatch in the foreground")
    }

    /// Waits until the state file holds this word.
    pub fn wait_state(&self, word: &str) {
        self.wait_state_file(word, |state| state == word);
    }

    fn wait_state_file(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let what = self.and_log(format!("the state file to hold {what}"));
        self.files.until(what, || condition(&self.setup.state()).then_some(()));
    }

    /// What is waited for, and, if it comes to that, the log as it is then.
    pub(crate) fn and_log(&self, what: String) -> impl Display {
        Late(move || format!("{what}:\n{}", self.setup.log()))
    }

    /// Waits until a condition holds, looked at whenever a file in `conf_dir` changes.
    pub fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        self.files.until(self.and_log(what.into()), || condition().then_some(()));
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.wait_exit()
    }

    /// Waits for the end; the status is known of one in the foreground.
    pub fn wait_exit(mut self) -> Option<ExitStatus> {
        wait_end(self.pid);
        self.child.take().map(|mut child| child.wait().expect("an exit status"))
    }

    /// Waits until there is nothing left to do: until it sleeps without a timeout, or until the next look at the agent's
    /// socket, of which the first is 10 s after a delivery. It may be long at work.
    pub fn wait_asleep(&self) {
        let (mut wakes, mut deadline) = (0, Deadline::after(PATIENCE));
        while self.sleeps_for().is_none_or(|millis| millis < 5500) {
            sleep(deadline.nap(&self.and_log("it to sleep".into())).min(Duration::from_millis(5)));
            if wakes != self.wakes() {
                (wakes, deadline) = (self.wakes(), Deadline::after(PATIENCE));
            }
        }
    }

    /// For how many milliseconds `/proc/PID/syscall` shows it to wait for events; `u32::MAX` if for ever.
    pub fn sleeps_for(&self) -> Option<u32> {
        let call = content(&PathBuf::from(format!("/proc/{}/syscall", self.pid)));
        let mut words = call.split_whitespace();
        let number = words.next().and_then(|number| number.parse().ok());
        let waits = number == Some(SYS_epoll_pwait) || number == SYS_EPOLL_WAIT;
        let timeout = words.nth(3).and_then(|word| u64::from_str_radix(word.get(2..)?, 16).ok());
        timeout.filter(|_| waits).map(|timeout| timeout as u32)
    }

    /// How often it was given the processor, having slept or not.
    pub fn wakes(&self) -> u64 {
        ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
            .map(|field| self.proc_status(field).parse::<u64>().expect("a number"))
            .iter()
            .sum()
    }

    /// The processes that it has started and that have not been waited for.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid)
    }

    /// A copy of its first socket of this type.
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

    /// A line of `/proc/PID/status`.
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

/// Not every architecture has it.
#[cfg(target_arch = "x86_64")]
const SYS_EPOLL_WAIT: Option<c_long> = Some(nix::libc::SYS_epoll_wait);
#[cfg(not(target_arch = "x86_64"))]
const SYS_EPOLL_WAIT: Option<c_long> = None;

/// Sends a signal to a process.
pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("to send a signal");
}

/// The processes that one has started and not waited for.
pub fn children(pid: u32) -> Vec<u32> {
    let list = content(&PathBuf::from(format!("/proc/{pid}/task/{pid}/children")));
    list.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

/// A line of `/proc/PID/status`.
pub fn proc_status(pid: u32, field: &str) -> String {
    let status = content(&PathBuf::from(format!("/proc/{pid}/status")));
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {status}")).trim().into()
}

/// Waits until a process has ended.
pub fn wait_end(pid: u32) {
    if let Some(pidfd) = pidfd(pid) {
        assert!(wait_readable(&pidfd, PATIENCE), "process {pid} does not end");
    }
}
