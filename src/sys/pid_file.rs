//! The pid file, which is also the lock that keeps a second instance out.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{FileStat, fstat, major, minor, stat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::constants::{Constant, Constants};
use super::file_id::{FileId, identify};
use super::own_file::{self, Refusal};
use super::privileges;
use super::users::{Trusted, content, number, words};
/// How often a file is tried that others replace, lock or let go meanwhile.
const TRIES: u32 = 16;

/// A locked pid file, removed when it is dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: &'static CStr,
    /// Its lock ends when it is closed.
    file: File,
    /// None if the system cannot tell.
    identity: Option<FileId>,
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
        identity: privileges::RunAs,
        constants: &mut Constants,
    ) -> Result<Self, PidFileError> {
        let c_path = constants.path(Constant::PidFile, path).map_err(Refusal::Errno)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let mut stranger = None;
        let mut says = None;
        for _ in 0..TRIES {
            let mut file = File::from(own_file::open(path, flags, identity, false)?);
            match file.try_lock() {
                Ok(()) => {
                    let file = file.into();
                    // Its holder may have removed it between our opening and locking it.
                    if own_file::is_at(c_path, &file) {
                        return Self::write(c_path, file.into(), stranger);
                    }
                    continue;
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(Refusal::Errno(error.into()).into()),
            }
            match holder(&file, Trusted::new(identity.user))? {
                Holder::Instance(pid) => return Err(PidFileError::Held(Some(pid))),
                Holder::Stranger(holder) => {
                    own_file::remove(path, &file.into(), identity)?;
                    stranger = Some(holder);
                }
                Holder::Nobody => {
                    let mut content = [0; 10];
                    let length = file.read(&mut content).unwrap_or_default();
                    says = content.get(..length).filter(|text| !text.is_empty()).and_then(number);
                }
            }
        }
        Err(PidFileError::Held(says))
    }

    /// At once, and the pid before what is left of an older one is cut off, so that the file is not found
    /// empty.
    fn write(
        path: &'static CStr,
        mut file: File,
        stranger: Option<Stranger>,
    ) -> Result<Self, PidFileError> {
        let identity = identify(path).ok();
        let pid = std::process::id().to_string();
        let written = file.write_all(pid.as_bytes()).and_then(|()| file.set_len(pid.len() as u64));
        let pid_file = Self { path, file, identity, stranger };
        written.map_err(|error| Refusal::Errno(error.into()))?;
        Ok(pid_file)
    }

    /// Whether the file is still where it was. One that started at the same moment, and saw a stranger's
    /// lock as we did, may have taken ours away for that.
    pub fn is_ours(&self) -> bool {
        self.identity.is_none() || identify(self.path).ok() == self.identity
    }
}

/// Who has the lock on a file (`proc_locks(5)`). Where several have, the one that counts.
fn holder(file: &File, trusted: Trusted) -> nix::Result<Holder> {
    let file = fstat(file)?;
    let id = format!("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
    let mut holder = Holder::Nobody;
    for line in content("/proc/locks").split(|byte| *byte == b'\n') {
        let mut line = words(line).skip(1);
        // What waits for a lock has an arrow in the place of the kind.
        if line.next() != Some(b"FLOCK") {
            continue;
        }
        let pid = line.nth(2).and_then(number);
        let Some(pid) = pid.filter(|_| line.next() == Some(id.as_bytes())) else { continue };
        match user_of(pid, trusted) {
            User::Trusted if has_open(pid, &file) => return Ok(Holder::Instance(pid)),
            // What locked the file is not what has its pid now.
            User::Trusted | User::Nobody => holder = Holder::Stranger(Stranger { pid, user: None }),
            User::Other(user) => holder = Holder::Stranger(Stranger { pid, user: Some(user) }),
        }
    }
    Ok(holder)
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
    let status = content(&format!("/proc/{pid}/status"));
    let mut lines = status.split(|byte| *byte == b'\n');
    let Some(users) = lines.find_map(|line| line.strip_prefix(b"Uid:")) else {
        return User::Nobody;
    };
    let other = words(users).filter_map(number).find(|user| !trusted.includes(*user));
    other.map_or(User::Trusted, User::Other)
}

/// Whether a process has a file open, as far as can be seen.
fn has_open(pid: u32, file: &FileStat) -> bool {
    let path = |fd| CString::new(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    (0..256).any(|fd| match stat(path(fd).as_c_str()) {
        Ok(open) => (open.st_dev, open.st_ino) == (file.st_dev, file.st_ino),
        Err(errno) => errno == NixErrno::EACCES,
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
            let _ = self.file.set_len(0);
        }
    }
}

impl AsRawFd for PidFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
