//! The pid file and the log, which are opened with the rights of the user that the daemon runs as, and what root has
//! to do before for that user.

use std::ffi::CStr;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AtFlags, OFlag, open as open_path, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, fchown, fchownat, geteuid};

use super::files::c_path;
use super::privileges::RunAs;
use super::{atomic_file, trust};
use crate::errno::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ELOOP` for a symlink, `EMLINK` for a file with several hard links, or the errno of a system call.
    Errno(Errno),
    /// It is a FIFO, a device or a socket.
    NotRegular,
    /// It belongs to this user.
    Foreign(u32),
}

impl<E: Into<Errno>> From<E> for Refusal {
    fn from(errno: E) -> Self {
        Self::Errno(errno.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::NotRegular => f.write_str("not a regular file"),
            Self::Foreign(user) => write!(f, "belongs to user {user}"),
        }
    }
}

/// Opens a file, or creates it with mode 0644 if `flags` have `O_CREAT`. It has to be a regular file with one name,
/// of `user`, as whom this process runs, or of root. Allocates nothing.
pub fn open(path: &CStr, flags: OFlag, user: Uid) -> Result<File, Refusal> {
    // Others may have put there a symlink, a FIFO or a terminal.
    let safely = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match open_path(path, flags | safely, Mode::from_bits_truncate(0o644)) {
        // A socket, or a FIFO that nobody reads (`open(2)`).
        Err(NixErrno::ENXIO) => return Err(Refusal::NotRegular),
        opened => File::from(opened?),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        Err(Refusal::NotRegular)
    } else if found.nlink() > 1 {
        Err(NixErrno::EMLINK.into())
    } else if found.uid() == 0 || found.uid() == user.as_raw() {
        Ok(file)
    } else {
        Err(Refusal::Foreign(found.uid()))
    }
}

/// Checks whether [`open`] would open or create a file. Changes nothing.
pub fn examine(path: &Path) -> Result<(), Refusal> {
    match open(&c_path(path)?, OFlag::O_WRONLY, geteuid()) {
        Err(Refusal::Errno(Errno::NOT_FOUND)) => Ok(atomic_file::examine(path)?),
        opened => opened.map(drop),
    }
}

/// Whether the user that the daemon is to become has no file there yet and cannot make one, but root can, without
/// anybody else having a say in where that is.
pub fn needs_root(path: &Path, identity: RunAs) -> bool {
    let directory = path.parent().unwrap_or(path);
    becomes_other_user(identity)
        && fs::symlink_metadata(path).is_err()
        && trust::is_changed_only_by(directory, &[0])
}

/// As root, makes a file for which [`needs_root`] holds, and gives it to that user. One that is there by now is left
/// as it is.
pub fn make_for(path: &Path, identity: RunAs) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    match open_path(path, flags, Mode::from_bits_truncate(0o644)) {
        Err(NixErrno::EEXIST) => Ok(()),
        made => Ok(fchown(made?, identity.user, identity.group)?),
    }
}

/// The file that a predecessor has left as root's in the directory of the user that the daemon is to become. As that
/// user may replace and read it anyway, it can be given away ([`give`]): it has one name, everybody may read it, and it
/// is no other file that is mounted there.
pub fn find_left(path: &Path, identity: RunAs) -> Option<File> {
    let user = identity.user.filter(|_| becomes_other_user(identity))?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let above = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = File::from(open_path(path.parent()?, above, Mode::empty()).ok()?);
    let file = File::from(openat(&directory, path.file_name()?, flags, Mode::empty()).ok()?);
    let found = file.metadata().ok()?;
    let is_public = Mode::from_bits_truncate(found.mode()).contains(Mode::S_IROTH);
    let is_left = found.is_file() && found.nlink() == 1 && found.uid() == 0 && is_public;
    let is_theirs = directory.metadata().ok()?.uid() == user.as_raw();
    let is_mounted = mount_of(&file)? != mount_of(&directory)?;
    (is_left && is_theirs && !is_mounted).then_some(file)
}

/// The line with the number of the mount that a file is on (`proc_pid_fdinfo(5)`).
fn mount_of(file: &File) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    info.lines().find(|line| line.starts_with("mnt_id:")).map(String::from)
}

/// Gives an open file to the user that the daemon is to become.
pub fn give(file: &File, identity: RunAs) -> Result<(), Errno> {
    Ok(fchownat(file, c"", identity.user, identity.group, AtFlags::AT_EMPTY_PATH)?)
}

fn becomes_other_user(identity: RunAs) -> bool {
    geteuid().is_root() && identity.user.is_some_and(|user| !user.is_root())
}
