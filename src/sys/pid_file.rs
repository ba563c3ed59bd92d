//! The pid file, whose lock keeps a second instance out.

use std::ffi::CString;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use nix::unistd::{ftruncate, geteuid};

use super::files::{c_path, is_at, unlink};
use super::own_file::{self, Refusal};
use crate::errno::Errno;

/// Attempts while other processes replace, lock or unlock the file.
const TRIES: u32 = 16;

/// A locked pid file, removed when dropped. The lock ends with the process, so a new daemon takes a stale file over.
#[derive(Debug)]
pub struct PidFile {
    path: CString,
    /// Holds the lock.
    file: File,
}

impl PidFile {
    /// Opens or creates the file, locks it, and writes this process's pid: digits, no newline. A trial has the same
    /// errors, changes nothing and returns `None`.
    pub fn lock(path: &Path, is_trial: bool) -> Result<Option<Self>, Refusal> {
        let name = c_path(path)?;
        let create = if is_trial { OFlag::empty() } else { OFlag::O_CREAT };
        for _ in 0..TRIES {
            let (file, refusal) = match own_file::open(&name, OFlag::O_RDWR | create, geteuid()) {
                Ok(file) => (file, None),
                Err(Refusal::Errno(Errno::NOT_FOUND)) if is_trial => {
                    return own_file::examine(path).map(|()| None);
                }
                Err(refusal) => {
                    // A predecessor that runs as root may hold the lock.
                    let Ok(file) = own_file::open(&name, OFlag::O_RDONLY, geteuid()) else {
                        own_file::check_directory(path, refusal.clone())?;
                        return Err(refusal);
                    };
                    (file, Some(refusal))
                }
            };
            match (file.try_lock(), refusal) {
                // Another instance may have removed it between open and lock.
                (Ok(()), _) if is_at(&name, &file) != Ok(true) => {}
                (Ok(()), _) if is_trial => return own_file::examine(path).map(|()| None),
                (Ok(()), Some(refusal)) => own_file::set_aside(path, refusal)?,
                (Ok(()), None) => {
                    // Dropping it removes the file if the write fails.
                    let mut locked = Self { path: name, file };
                    // A reader may find the file empty, but never digits of two pids.
                    locked.file.set_len(0)?;
                    locked.file.write_all(std::process::id().to_string().as_bytes())?;
                    return Ok(Some(locked));
                }
                (Err(TryLockError::WouldBlock), _) => {
                    if let Some(holder) = find_holder(&file) {
                        return Err(Refusal::Held(holder));
                    }
                }
                (Err(TryLockError::Error(error)), _) => return Err(error.into()),
            }
        }
        Err(Refusal::Held("a process that is not visible from here".into()))
    }

    /// Returns whether the file at the path is still this daemon's. A directory that may not be searched hides no other.
    pub fn is_own(&self) -> bool {
        let gone = [NixErrno::ENOENT, NixErrno::ENOTDIR].map(Err);
        let found = is_at(&self.path, &self.file);
        found != Ok(false) && !gone.contains(&found)
    }
}

/// Returns the process that holds the lock on a file (`proc_locks(5)`), unless it belongs to another PID namespace.
fn find_holder(file: &File) -> Option<String> {
    let found = file.metadata().ok()?;
    let id = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        // A waiting process has `->` in place of the kind.
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, file, ..] if file == id => Some(pid),
            _ => None,
        }
    })?;
    Some(match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}, which has exited, or by one of its children"),
    })
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another instance's, which Neutron's agent may have started.
    fn drop(&mut self) {
        // A user without rights to the directory can still empty the file.
        if self.is_own() && unlink(&self.path).is_err() {
            let _ = ftruncate(&self.file, 0);
        }
    }
}
