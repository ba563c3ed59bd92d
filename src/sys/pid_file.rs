//! The pid file, which is also the lock that keeps a second instance out.

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

/// How often a file is tried that others replace, lock or let go meanwhile.
const TRIES: u32 = 16;

/// A locked pid file, removed when it is dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: &'static CStr,
    /// Its lock ends when it is closed.
    file: File,
    identity: FileId,
    /// Whoever had locked the file that was there before: no daemon, so that file was replaced.
    pub stranger: Option<Stranger>,
}

/// Why the pid file could not be had.
#[derive(Debug, PartialEq, Eq)]
pub enum PidFileError {
    /// Another instance holds it, of this pid where that can be told.
    Held(Option<u32>),
    /// It cannot be opened or locked.
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for PidFileError {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Somebody with a lock on the file that no daemon would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    pid: u32,
    /// None for a process that has ended and left the lock to another.
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
    /// To lock a file one need but read it, and everybody is to read this one. So a lock counts as another
    /// instance's only if its holder is root, ourselves or whom we will be; from anybody else's we turn to
    /// a new file.
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
                // Its holder may have removed it between our opening and locking it.
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
                    says = content.get(..length).filter(|text| !text.is_empty()).and_then(number);
                }
            }
        }
        Err(PidFileError::Held(says))
    }

    /// At once, and the pid before what is left of an older one is cut off, so that the file is not found
    /// empty.
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

    /// Whether the file is still where it was. One that started at the same moment, and saw a stranger's
    /// lock as we did, may have taken ours away for that.
    pub fn is_ours(&self) -> bool {
        identify(self.path) == Ok(self.identity)
    }
}

/// Who has the lock on a file (`proc_locks(5)`). Where several have, the one that counts.
fn holder(file: FileId, trusted: Trusted) -> Holder {
    let (major, minor) = (major(file.device), minor(file.device));
    let id = format!("{major:02x}:{minor:02x}:{}", file.inode);
    let mut holder = Holder::Nobody;
    for line in lines(&content(c"/proc/locks")) {
        let mut line = words(line).skip(1);
        // What waits for a lock has an arrow in the place of the kind.
        if line.next() != Some(b"FLOCK") {
            continue;
        }
        let pid = line.nth(2).and_then(number);
        let Some(pid) = pid.filter(|_| line.next() == Some(id.as_bytes())) else { continue };
        let user = match user_of(pid, trusted) {
            User::Trusted if has_open(pid, file) => return Holder::Instance(pid),
            // What locked the file is not what has its pid now.
            User::Trusted | User::Nobody => None,
            User::Other(user) => Some(user),
        };
        holder = Holder::Stranger(Stranger { pid, user });
    }
    holder
}

/// Whom a process belongs to.
enum User {
    Trusted,
    Other(u32),
    /// It has ended.
    Nobody,
}

/// We trust it only for every number that it has: a program that runs with root's rights on behalf of
/// another has that one's number too.
fn user_of(pid: u32, trusted: Trusted) -> User {
    let path = c_string(format!("/proc/{pid}/status").as_bytes()).unwrap_or_default();
    let status = content(&path);
    let Some(users) = lines(&status).find_map(|line| line.strip_prefix(b"Uid:")) else {
        return User::Nobody;
    };
    let other = words(users).filter_map(number).find(|user| !trusted.includes(*user));
    other.map_or(User::Trusted, User::Other)
}

/// Whether a process has a file open, as far as can be seen.
fn has_open(pid: u32, file: FileId) -> bool {
    let path = |fd| c_string(format!("/proc/{pid}/fd/{fd}").as_bytes()).unwrap_or_default();
    (0..256).any(|fd| match identify(&path(fd)) {
        Ok(open) => open == file,
        Err(Errno(errno)) => errno == NixErrno::EACCES as i32,
    })
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another's by now: Neutron's agent removes
    /// the file itself as soon as it has sent SIGTERM, and may have started the next one.
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let removed = unlinkat(AT_FDCWD, self.path, UnlinkatFlags::NoRemoveDir);
        if removed.is_err() {
            // Who has dropped to a user that may not remove it leaves it, but it names nobody.
            let _ = self.cut_off(0);
        }
    }
}

impl AsRawFd for PidFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
