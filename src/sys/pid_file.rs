//! The pid file, whose lock keeps a second instance out.

use core::ffi::CStr;
use core::fmt;
use std::fs::{File, TryLockError};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{major, minor};
use nix::unistd::{UnlinkatFlags, ftruncate, read, unlinkat, write};

use super::constants::{Constant, Constants};
use super::file_id::{FileId, identify, identify_link, identify_open};
use super::files::{c_string, content, lines, number, words};
use super::own_file::{self, Refusal};
use super::privileges::RunAs;
use super::trust::Trusted;
use crate::errno::Errno;

/// How often to retry while others replace, lock or unlock the file.
const TRIES: u32 = 16;

/// A locked pid file, removed when dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: &'static CStr,
    /// Holds the lock.
    file: File,
    identity: FileId,
    /// Who had locked the previous file, which was replaced for that.
    pub stranger: Option<Stranger>,
}

/// Why the pid file could not be locked.
#[derive(Debug, PartialEq, Eq)]
pub enum PidFileError {
    /// Another instance holds it, with this pid if known.
    Held(Option<u32>),
    /// It cannot be opened or locked.
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for PidFileError {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// The holder of a lock on the file who is no other instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    pid: u32,
    /// `None` if the process that took the lock has ended and another one has inherited it.
    user: Option<u32>,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user {
            Some(user) => write!(f, "process {} of user {user}", self.pid),
            None => write!(f, "process {}, which has ended", self.pid),
        }
    }
}

enum Holder {
    Instance(u32),
    Stranger(Stranger),
    /// It is not to be seen, or gone by now.
    Nobody,
}

impl PidFile {
    /// Opens or creates the file, mode 0644, locks it, and makes this process's pid the content: digits, no
    /// newline.
    ///
    /// Everybody may read the file, and so can lock it. A lock therefore counts as another instance's only if
    /// its holder is root, this user or the one that the daemon will run as. A file that somebody else has
    /// locked is replaced.
    ///
    /// # Errors
    /// [`PidFileError`].
    pub fn lock(
        path: &Path,
        identity: RunAs,
        constants: &mut Constants,
    ) -> Result<Self, PidFileError> {
        let c_path = constants.path(Constant::PidFile, path).map_err(Refusal::Errno)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let mut stranger = None;
        let mut says = None;
        for _ in 0..TRIES {
            let file = File::from(own_file::open(path, flags, identity, false)?);
            let id = identify_open(&file)?;
            match file.try_lock() {
                // Another instance may have removed it between open and lock.
                Ok(()) if identify_link(c_path) != Ok(id) => continue,
                Ok(()) => {
                    let pid_file = Self { path: c_path, file, identity: id, stranger };
                    pid_file.write()?;
                    return Ok(pid_file);
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(Errno::from(error).into()),
            }
            match holder(id, Trusted::new(identity.user)) {
                Holder::Instance(pid) => return Err(PidFileError::Held(Some(pid))),
                Holder::Stranger(holder) => {
                    own_file::remove(c_path, id, identity)?;
                    stranger = Some(holder);
                }
                Holder::Nobody => {
                    let mut content = [0; 10];
                    let length = read(&file, &mut content).unwrap_or_default();
                    says = content.get(..length).and_then(number);
                }
            }
        }
        Err(PidFileError::Held(says))
    }

    /// Writes the pid before it truncates the rest, so that no reader finds the file empty.
    fn write(&self) -> Result<(), Errno> {
        let pid = std::process::id().to_string();
        if write(&self.file, pid.as_bytes())? < pid.len() {
            return Err(NixErrno::ENOSPC.into());
        }
        self.cut_off(pid.len())
    }

    fn cut_off(&self, length: usize) -> Result<(), Errno> {
        Ok(ftruncate(&self.file, length.try_into().unwrap_or_default())?)
    }

    /// Whether the file is still at its path. An instance that started at the same moment may have replaced it,
    /// if both saw a stranger's lock.
    pub fn is_ours(&self) -> bool {
        identify(self.path) == Ok(self.identity)
    }
}

/// The holder of the lock on a file (`proc_locks(5)`). Among several, an instance comes first.
fn holder(file: FileId, trusted: Trusted) -> Holder {
    let (major, minor) = (major(file.device), minor(file.device));
    let id = format!("{major:02x}:{minor:02x}:{}", file.inode);
    let mut holder = Holder::Nobody;
    for line in lines(&content(c"/proc/locks")) {
        let mut line = words(line).skip(1);
        // A waiting process has `->` in place of the kind.
        if line.next() != Some(b"FLOCK") {
            continue;
        }
        let pid = line.nth(2).and_then(number);
        let Some(pid) = pid.filter(|_| line.next() == Some(id.as_bytes())) else { continue };
        let user = match user_of(pid, trusted) {
            User::Trusted if has_open(pid, file) => return Holder::Instance(pid),
            // The pid is no longer that of the process that locked the file.
            User::Trusted | User::Nobody => None,
            User::Other(user) => Some(user),
        };
        holder = Holder::Stranger(Stranger { pid, user });
    }
    holder
}

/// The owner of a process.
enum User {
    Trusted,
    Other(u32),
    /// The process has ended.
    Nobody,
}

/// A process is trusted only if its real, effective, saved and file system uid are: a setuid program has its
/// caller's too.
fn user_of(pid: u32, trusted: Trusted) -> User {
    let path = c_string(format!("/proc/{pid}/status").as_bytes()).unwrap_or_default();
    let status = content(&path);
    let Some(users) = lines(&status).find_map(|line| line.strip_prefix(b"Uid:")) else {
        return User::Nobody;
    };
    let other = words(users).filter_map(number).find(|user| !trusted.includes(*user));
    other.map_or(User::Trusted, User::Other)
}

/// Whether a process has a file open, or may have: its descriptors may be hidden.
fn has_open(pid: u32, file: FileId) -> bool {
    let path = |fd| c_string(format!("/proc/{pid}/fd/{fd}").as_bytes()).unwrap_or_default();
    (0..256).any(|fd| match identify(&path(fd)) {
        Ok(open) => open == file,
        Err(Errno(errno)) => errno == NixErrno::EACCES as i32,
    })
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another instance's by now: Neutron's agent removes the
    /// file itself once it has sent SIGTERM, and may already have started the next monitor.
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let removed = unlinkat(AT_FDCWD, self.path, UnlinkatFlags::NoRemoveDir);
        if removed.is_err() {
            // Not permitted to the user that the daemon has become.
            let _ = self.cut_off(0);
        }
    }
}

impl AsRawFd for PidFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
