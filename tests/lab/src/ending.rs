//! The end of a daemon, which ends every wait of its test.

use std::cell::RefCell;
use std::fmt::Display;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::libc;

use crate::files::{content, wait_readable};

/// How often a wait checks whether a daemon has ended.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long other threads of the test may need to record a daemon's last actions after its end.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    /// The daemons of the test that this thread runs.
    static WATCHED: RefCell<Vec<Process>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct Process {
    /// The number of its [`Watched`].
    watch: u32,
    pid: u32,
    /// None if it ended before it was watched.
    pidfd: Option<OwnedFd>,
}

/// Makes every wait of this thread fail when a daemon ends, until this is dropped.
#[derive(Debug)]
pub struct Watched(u32);

impl Watched {
    pub fn new(pid: u32) -> Self {
        static WATCHES: AtomicU32 = AtomicU32::new(0);
        let watch = WATCHES.fetch_add(1, Ordering::Relaxed);
        WATCHED.with_borrow_mut(|all| all.push(Process { watch, pid, pidfd: pidfd(pid) }));
        Self(watch)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The thread's variables may already be gone.
        let _ = WATCHED.try_with(|all| all.borrow_mut().retain(|process| process.watch != self.0));
    }
}

/// The time when a wait fails.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    /// How a daemon has ended meanwhile.
    ended: Option<String>,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        Self { at: Instant::now() + patience, ended: None }
    }

    /// Returns how long to sleep before the next check. Panics after the deadline, or if a daemon has ended.
    #[track_caller]
    pub(crate) fn nap(&mut self, what: &dyn Display) -> Duration {
        if self.ended.is_none() {
            self.ended = WATCHED.with_borrow(|all| all.iter().find_map(Process::ended));
            if self.ended.is_some() {
                self.at = self.at.min(Instant::now() + GRACE);
            }
        }
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let ended = self.ended.take().map(|how| how + "; ").unwrap_or_default();
            panic!("{ended}waited in vain for {what}");
        }
        left.min(INTERVAL)
    }
}

impl Process {
    /// Returns how it has ended, if it has.
    fn ended(&self) -> Option<String> {
        let pid = self.pid;
        let Some(pidfd) = &self.pidfd else {
            return Some(format!("keepwatch, pid {pid}, had ended before the wait"));
        };
        if !wait_readable(pidfd, Duration::ZERO) {
            return None;
        }
        let how = match exit_status(pid, pidfd) {
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                let name = nix::sys::signal::Signal::try_from(signal)
                    .map_or(format!("signal {signal}"), |signal| signal.to_string());
                let call = if signal == libc::SIGSYS { forbidden_call(pid) } else { String::new() };
                format!("was killed by {name}{call}")
            }
            Some(status) => format!("ended with exit code {}", libc::WEXITSTATUS(status)),
            None => "ended; how can only be read since Linux 6.15".into(),
        };
        Some(format!("keepwatch, pid {pid}, {how}"))
    }
}

/// Returns the status as `wait(2)` has it: from `/proc/PID/stat` as long as the parent has not waited for it.
fn exit_status(pid: u32, pidfd: &OwnedFd) -> Option<i32> {
    let stat = content(format!("/proc/{pid}/stat").as_ref());
    let status = stat.rsplit(' ').next().and_then(|status| status.trim().parse().ok());
    status.or_else(|| reaped_status(pidfd))
}

/// Returns the status of a process that its parent has waited for: `PIDFD_GET_INFO` of `linux/pidfd.h`.
fn reaped_status(pidfd: &OwnedFd) -> Option<i32> {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    #[repr(C)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        status: i32,
    }
    nix::ioctl_readwrite!(get_info, 0xff, 11, Info);
    let mut info = Info { mask: PIDFD_INFO_EXIT, cgroup: 0, ids: [0; 11], status: 0 };
    // SAFETY: the structure is the first version of the kernel's, whose size is in the request.
    let result = unsafe { get_info(pidfd.as_raw_fd(), &raw mut info) };
    (result.is_ok() && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.status)
}

/// Returns the call for which a filter has killed a process, by the audit line in the kernel's log.
fn forbidden_call(pid: u32) -> String {
    let log = Command::new("dmesg").output().map(|output| output.stdout).unwrap_or_default();
    let (log, whose) = (String::from_utf8_lossy(&log), format!(" pid={pid} "));
    let line = log.lines().rfind(|line| line.contains("type=1326 ") && line.contains(&whose));
    line.and_then(|line| line.split_once(" syscall=")?.1.split(' ').next()).map_or_else(
        || " for a system call; run it under strace to see which".into(),
        |number| format!(" for system call {number}"),
    )
}

/// Returns a descriptor that becomes readable when the process ends, or none if it has ended.
pub(crate) fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a system call without pointers, whose result is checked before it is owned.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}
