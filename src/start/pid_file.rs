//! Takes the pid file's lock.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use nix::unistd::geteuid;

use super::files::{self, c_path};
use crate::errno::Errno;
use crate::sys::files::is_at;
use crate::sys::own_file::{self, Holder, Refusal};
use crate::sys::pid_file::PidFile;

/// Attempts while other processes replace, lock or unlock the file.
const TRIES: u32 = 16;

/// Opens or creates the file, locks it, and writes this process's pid: digits, no newline. A trial has the same
/// errors, changes nothing and returns `None`.
pub(super) fn lock(path: &Path, is_trial: bool) -> Result<Option<PidFile>, Refusal> {
    let name = c_path(path)?;
    let create = if is_trial { OFlag::empty() } else { OFlag::O_CREAT };
    for _ in 0..TRIES {
        let (file, refusal) = match own_file::open(&name, OFlag::O_RDWR | create, geteuid()) {
            Ok(file) => (file, None),
            Err(Refusal::Errno(Errno::NOT_FOUND)) if is_trial => {
                return files::examine(path).map(|()| None);
            }
            Err(refusal) => {
                // A predecessor that runs as root may hold the lock.
                let Ok(file) = own_file::open(&name, OFlag::O_RDONLY, geteuid()) else {
                    files::check_directory(path, refusal.clone())?;
                    return Err(refusal);
                };
                (file, Some(refusal))
            }
        };
        match (file.try_lock(), refusal) {
            // Another instance may have removed it between open and lock.
            (Ok(()), _) if is_at(&name, &file) != Ok(true) => {}
            (Ok(()), _) if is_trial => return files::examine(path).map(|()| None),
            (Ok(()), Some(refusal)) => files::set_aside(path, refusal)?,
            (Ok(()), None) => {
                return Ok(Some(PidFile::write(name, file)?));
            }
            (Err(TryLockError::WouldBlock), _) => {
                if let Some(holder) = find_holder(&file) {
                    return Err(Refusal::Held(holder));
                }
            }
            (Err(TryLockError::Error(error)), _) => return Err(error.into()),
        }
    }
    Err(Refusal::Held(Holder::Invisible))
}

/// Returns the process that holds the lock on a file (`proc_locks(5)`), unless it belongs to another PID namespace.
fn find_holder(file: &File) -> Option<Holder> {
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
    let pid = pid.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    let name = name.ok().and_then(|name| name.trim_end().try_into().ok());
    Some(name.map_or(Holder::Exited(pid), |name| Holder::Process(pid, name)))
}
