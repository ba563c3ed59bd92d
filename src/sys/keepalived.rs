//! Whether keepalived runs, by the pid file of its VRRP process.

#![expect(unsafe_code, reason = "pidfd_open")]

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::clock;
use super::files::SAFELY;
use crate::monitor::{Instant, Keepalived};

#[derive(Debug)]
pub struct KeepalivedFile {
    pub(crate) path: CString,
    /// Whether this process sees all processes of the machine.
    pub(crate) sees_all: bool,
    /// Whether the file is in memory, and so of this boot, whatever the clock was when it was written.
    pub(crate) in_memory: bool,
    /// The process in the file, by its number and the file's time, and its descriptor.
    pub(crate) process: Option<((i32, i64), OwnedFd)>,
    /// The time of the file that was last seen locked.
    pub(crate) locked: Option<i64>,
}

impl KeepalivedFile {
    /// Checks whether keepalived runs. Allocates nothing.
    pub fn check(&mut self) -> Keepalived {
        match open(&*self.path, OFlag::O_RDONLY | SAFELY, Mode::empty()) {
            Ok(file) => self.examine(&file.into()).unwrap_or(Keepalived::Unknown),
            // keepalived removes it when it ends.
            Err(NixErrno::ENOENT) => Keepalived::Gone,
            Err(_) => Keepalived::Unknown,
        }
    }

    /// Returns whether the process in the file runs. None: that cannot be seen, and is no trouble.
    fn examine(&mut self, mut file: &File) -> Option<Keepalived> {
        let written = file.metadata().ok()?.mtime();
        // Newer releases of keepalived lock it, which also shows in another PID namespace.
        if is_locked(file) {
            self.locked = Some(written);
            return Some(Keepalived::Runs);
        } else if self.locked == Some(written) {
            return Some(Keepalived::Gone);
        }
        let mut text = [0; 16];
        let length = file.read(&mut text).ok()?;
        let pid = str::from_utf8(text.get(..length)?).ok()?.trim_end().parse().ok()?;
        if self.process.as_ref().is_none_or(|(known, _)| *known != (pid, written)) {
            // The number in a file of an earlier boot may be another process's.
            let boot = clock::unix_time(Instant::ZERO);
            u64::try_from(written).ok().filter(|written| self.in_memory || *written >= boot)?;
            self.process = None;
            let descriptor = match open_process(pid) {
                Err(NixErrno::ESRCH) if self.sees_all => return Some(Keepalived::Gone),
                opened => opened.ok()?,
            };
            self.process = Some(((pid, written), descriptor));
        }
        let (_, process) = self.process.as_ref()?;
        // Readable once the process has ended (`pidfd_open(2)`).
        let ended = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        Some(if ended == Ok(0) { Keepalived::Runs } else { Keepalived::Gone })
    }
}

/// Returns whether a process that may write the file has locked it. Any user who may read it can hold a read lock.
fn is_locked(file: &File) -> bool {
    let (kind, whence) = (libc::F_RDLCK, libc::SEEK_SET);
    let (Ok(l_type), Ok(l_whence)) = (kind.try_into(), whence.try_into()) else { return false };
    // SAFETY: all zeroes are a valid `flock`.
    let mut lock = libc::flock { l_type, l_whence, ..unsafe { std::mem::zeroed() } };
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock));
    asked.is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}

fn open_process(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: a system call without pointers. Linux 5.3.
    let fd = NixErrno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = fd.try_into().map_err(|_| NixErrno::EBADF)?;
    // SAFETY: the kernel has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
