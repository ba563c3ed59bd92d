//! Takes the pid file's lock.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::sys::stat::{major, minor};
use nix::unistd::{Pid, geteuid};

use super::files::{self, c_path};
use crate::errno::Errno;
use crate::sys::files::is_at;
use crate::sys::own_file::{self, Refusal};
use crate::sys::pid_file::PidFile;

/// Attempts while other processes replace, lock or unlock the file.
const TRIES: u32 = 16;

/// Opens or creates the file, locks it, and writes this process's pid: digits, no newline. A trial has the same
/// errors, changes nothing and returns `None`.
pub(super) fn lock(path: &Path, is_trial: bool) -> Result<Option<PidFile>, Refusal> {
    let is_absent = |error: io::Error| error.kind() == ErrorKind::NotFound;
    let is_new = !is_trial && path.symlink_metadata().is_err_and(is_absent);
    let locked = open_locked(path, is_trial);
    // Another instance's file is empty only until it has written its pid.
    let is_left = || path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0);
    match &locked {
        Ok(_) | Err(Refusal::Held(_)) => {}
        // This process has created it. A file that stays would be taken over.
        Err(_) if is_new && is_left() => drop(fs::remove_file(path)),
        Err(_) => {}
    }
    locked
}

fn open_locked(path: &Path, is_trial: bool) -> Result<Option<PidFile>, Refusal> {
    let name = c_path(path)?;
    let create = if is_trial { OFlag::empty() } else { OFlag::O_CREAT };
    let examine = || files::examine(path, OFlag::O_WRONLY, b"a pid");
    for _ in 0..TRIES {
        let (file, refusal) = match own_file::open(&name, OFlag::O_RDWR | create, geteuid()) {
            Ok(file) => (file, None),
            Err(Refusal::Errno(Errno::NOT_FOUND)) if is_trial => {
                return examine().map(|()| None);
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
        let is_there = || match is_at(&name, &file) {
            Err(NixErrno::ENOENT) => Ok(false),
            found => found,
        };
        match (file.try_lock(), refusal) {
            // Another instance may have removed it between open and lock.
            (Ok(()), _) if !is_there()? => {}
            (Ok(()), _) if is_trial => return examine().map(|()| None),
            (Ok(()), Some(refusal)) => {
                files::check_directory(path, refusal)?;
                files::set_aside(path)?;
            }
            (Ok(()), None) => {
                let found = file.metadata()?;
                if found.mode() & 0o022 != 0 && found.uid() == geteuid().as_raw() {
                    // Whoever may write the pid chooses whom the agent kills. Some file systems know no modes.
                    let _ = file.set_permissions(Permissions::from_mode(found.mode() & !0o022));
                }
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
    // Of another PID namespace or machine, or a child of one of this namespace that has exited.
    Err(Refusal::Held("a process that cannot be found from here".into()))
}

/// Returns the device of a file as the list of locks has it: that of the mount. `stat(2)` has another one on an overlay, and
/// on btrfs. Before Linux 5.14, only root may read `fdinfo` after a change of user.
fn mount_device(file: &File) -> Option<(u64, u64)> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let device =
        mounts.find_map(|mut words| (words.next() == Some(mount)).then(|| words.nth(1))?)?;
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns a text with the process that holds the lock on a file (`proc_locks(5)`), unless it belongs to another PID namespace
/// or cannot be found out.
fn find_holder(file: &File) -> Option<Box<str>> {
    let found = file.metadata().ok()?;
    let device = (major(found.dev()), minor(found.dev()));
    let (major, minor) = mount_device(file).unwrap_or(device);
    let id = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        // A waiting process has `->` in place of the kind.
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, file, ..] if file == id => Some(pid),
            _ => None,
        }
    })?;
    let pid = pid.parse().ok()?;
    let more = match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!(" ({})", name.trim_end()),
        // One of its children has inherited the lock.
        Err(_) if kill(Pid::from_raw(pid), None) == Err(NixErrno::ESRCH) => {
            ", which has exited, or by one of its children".into()
        }
        // With `hidepid`, as of systemd's ProtectProc=, /proc lacks other users' processes.
        Err(_) => String::new(),
    };
    Some(format!("process {pid}{more}").into())
}
