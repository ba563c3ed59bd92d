//! The pid file, whose lock keeps a second instance out.

use std::ffi::CString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use nix::unistd::{ftruncate, geteuid};

use super::atomic_file;
use super::files::{c_path, is_at, unlink};
use super::own_file::{self, Refusal};

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
    /// newline. The error is who holds the lock, or what else is wrong.
    pub fn lock(path: &Path) -> Result<Self, String> {
        let refused = |refusal: Refusal| refusal.to_string();
        let path = c_path(path).map_err(|errno| refused(errno.into()))?;
        for _ in 0..TRIES {
            let opened = own_file::open(&path, OFlag::O_RDWR | OFlag::O_CREAT, geteuid());
            // What a predecessor has left as root's in the user's directory can be locked and removed, not written.
            let is_writable = opened.is_ok();
            let opened = opened.or_else(|refusal| {
                own_file::open(&path, OFlag::O_RDONLY, geteuid()).map_err(|_| refusal)
            });
            let file = opened.map_err(refused)?;
            match file.try_lock() {
                // Another instance may have removed it between open and lock.
                Ok(()) if is_at(&path, &file) != Some(true) => {}
                Ok(()) if !is_writable => {
                    unlink(&path).map_err(|errno| refused(errno.into()))?;
                }
                Ok(()) => {
                    // Removed if that fails.
                    let locked = Self { path, file };
                    write_pid(&locked.file).map_err(|errno| refused(errno.into()))?;
                    return Ok(locked);
                }
                Err(TryLockError::WouldBlock) => {
                    if let Some(holder) = find_holder(&file) {
                        return Err(format!("held by {holder}"));
                    }
                }
                Err(TryLockError::Error(error)) => return Err(refused(error.into())),
            }
        }
        Err("held by a process that is not visible from here".into())
    }
}

/// Checks whether the file could be opened, made or replaced. Changes nothing, and does not look at the lock.
pub fn examine(path: &Path) -> Result<(), Refusal> {
    match own_file::examine(path) {
        Err(refusal) if refusal == NixErrno::EACCES.into() => Ok(atomic_file::examine(path)?),
        examined => examined,
    }
}

/// A reader may find the file empty, as at the first start, but never digits of two pids.
fn write_pid(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(std::process::id().to_string().as_bytes())
}

/// Finds out who holds the lock on a file (`proc_locks(5)`). Returns `None` if nobody does any more, or a process of
/// another PID namespace.
fn find_holder(file: &File) -> Option<String> {
    let found = file.metadata().ok()?;
    let id = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
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
        if is_at(&self.path, &self.file) == Some(true) && unlink(&self.path).is_err() {
            let _ = ftruncate(&self.file, 0);
        }
    }
}
