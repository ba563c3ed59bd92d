//! The pid file, whose lock keeps a second instance out.

use std::ffi::{CStr, CString};
use std::fs::{self, File, TryLockError};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, major, minor};
use nix::unistd::{UnlinkatFlags, ftruncate, geteuid, unlinkat, write};

use super::atomic_file;
use super::files::{c_path, identify};
use super::own_file::{self, Refusal};
use crate::errno::Errno;

/// How often to retry while others replace, lock or unlock the file.
const TRIES: u32 = 16;

/// A locked pid file, removed when dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: CString,
    /// Holds the lock.
    file: File,
}

impl PidFile {
    /// Opens or creates the file, mode 0644, locks it, and makes this process's pid the content: digits, no
    /// newline.
    ///
    /// # Errors
    /// Who holds the lock, or what else is wrong.
    pub fn lock(path: &Path) -> Result<Self, String> {
        let path = c_path(path).map_err(|errno| errno.to_string())?;
        for _ in 0..TRIES {
            let (file, is_writable) = open(&path).map_err(|refusal| refusal.to_string())?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => match find_holder(&file) {
                    Some(holder) => return Err(format!("held by {holder}")),
                    None => continue,
                },
                Err(TryLockError::Error(error)) => return Err(Errno::from(error).to_string()),
            }
            let pid_file = Self { path: path.clone(), file };
            // Another instance may have removed it between open and lock.
            if pid_file.is_in_place() {
                if is_writable {
                    pid_file.write().map_err(|errno| errno.to_string())?;
                    return Ok(pid_file);
                }
                pid_file.unlink().map_err(|errno| Errno::from(errno).to_string())?;
            }
        }
        Err("held by a process that is not visible from here".into())
    }

    /// Writes the pid before it truncates the rest, so that no reader finds the file empty.
    fn write(&self) -> Result<(), Errno> {
        let pid = std::process::id().to_string();
        if write(&self.file, pid.as_bytes())? < pid.len() {
            return Err(NixErrno::ENOSPC.into());
        }
        Ok(ftruncate(&self.file, pid.len().try_into().unwrap_or_default())?)
    }

    /// Whether the file is still at its path.
    fn is_in_place(&self) -> bool {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let there = openat(AT_FDCWD, &*self.path, flags, Mode::empty());
        there.is_ok_and(|there| identify(&there.into()).ok() == identify(&self.file).ok())
    }

    fn unlink(&self) -> nix::Result<()> {
        unlinkat(AT_FDCWD, &*self.path, UnlinkatFlags::NoRemoveDir)
    }
}

/// Opens the file to write to it, or else to lock it: one that a predecessor has left as root's can be locked and
/// replaced, but not written. Returns which.
fn open(path: &CStr) -> Result<(File, bool), Refusal> {
    match own_file::open(path, OFlag::O_RDWR | OFlag::O_CREAT, geteuid()) {
        Err(denied) if is_denied(denied) => {
            match own_file::open(path, OFlag::O_RDONLY, geteuid()) {
                // It cannot be made.
                Err(Refusal::Errno(Errno::NOT_FOUND)) => Err(denied),
                opened => Ok((opened?, false)),
            }
        }
        opened => Ok((opened?, true)),
    }
}

fn is_denied(refusal: Refusal) -> bool {
    refusal == NixErrno::EACCES.into()
}

/// Checks whether the file could be opened, made or replaced. Changes nothing, and does not look at the lock.
///
/// # Errors
/// Why not.
pub fn examine(path: &Path) -> Result<(), Refusal> {
    match own_file::examine(path) {
        Err(denied) if is_denied(denied) => Ok(atomic_file::examine(path)?),
        examined => examined,
    }
}

/// Finds out who holds the lock on a file (`proc_locks(5)`). Returns `None` if nobody does any more, or a process of
/// another PID namespace.
fn find_holder(file: &File) -> Option<String> {
    let (device, inode) = identify(file).ok()?;
    let id = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        // A process that waits for a lock has `->` in place of the kind.
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, file, ..] if file == id => Some(pid),
            _ => None,
        }
    })?;
    Some(match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}, which has ended, or by what it has started"),
    })
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another instance's by now: Neutron's agent removes the
    /// file itself once it has sent SIGTERM, and may already have started the next monitor.
    fn drop(&mut self) {
        // Where the user that the daemon has become may not remove it, it is emptied.
        if self.is_in_place() && self.unlink().is_err() {
            let _ = ftruncate(&self.file, 0);
        }
    }
}
