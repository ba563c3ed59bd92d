//! The pid file, which is also the lock that keeps a second instance out.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{major, minor};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::file::{Identity, identify};
use super::own_file::{self, Refusal};
use super::privileges;
use super::users::Trusted;
/// How often a file is tried that others replace, lock or let go meanwhile.
const TRIES: u32 = 16;

/// A locked pid file, removed when it is dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: CString,
    /// Its lock ends when it is closed.
    file: File,
    /// None if the system cannot tell.
    identity: Option<Identity>,
    /// Whoever had locked the file that was there before: no daemon, so that file was replaced.
    pub stranger: Option<Stranger>,
}

/// Why the pid file could not be had.
#[derive(Debug, PartialEq, Eq)]
pub enum NoPidFile {
    /// Another instance holds it, of this pid where that can be told.
    Held(Option<u32>),
    /// It cannot be opened or locked.
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for NoPidFile {
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
    /// [`NoPidFile`].
    pub fn lock(path: &Path, identity: privileges::Identity) -> Result<Self, NoPidFile> {
        let mut stranger = None;
        let mut last = None;
        for _ in 0..TRIES {
            let file =
                File::from(own_file::open(path, OFlag::O_RDWR | OFlag::O_CREAT, identity, false)?);
            match file.try_lock() {
                // Its holder may have removed it between our opening and locking it.
                Ok(()) if is_at(path, &file) => return Self::write(path, file, stranger),
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(NoPidFile::Refused(Refusal::Errno(error.into())));
                }
            }
            match holder(&file, Trusted::new(identity.user)) {
                Holder::Instance(pid) => return Err(NoPidFile::Held(Some(pid))),
                Holder::Stranger(holder) => {
                    own_file::remove(path, &file, identity)?;
                    stranger = Some(holder);
                }
                Holder::Nobody => last = Some(file),
            }
        }
        // What the file says, if that is a pid.
        let mut content = String::new();
        let _ = last.map(|file| file.take(16).read_to_string(&mut content));
        Err(NoPidFile::Held(content.trim().parse().ok()))
    }

    /// At once, and the pid before what is left of an older one is cut off, so that the file is not found
    /// empty.
    fn write(path: &Path, mut file: File, stranger: Option<Stranger>) -> Result<Self, NoPidFile> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Known::EINVAL)?;
        let identity = identify(&path).ok();
        let pid = std::process::id().to_string();
        let written = file.write_all(pid.as_bytes()).and_then(|()| file.set_len(pid.len() as u64));
        let pid_file = Self { path, file, identity, stranger };
        written.map_err(|error| NoPidFile::Refused(Refusal::Errno(error.into())))?;
        Ok(pid_file)
    }

    /// Whether the file is still where it was. One that started at the same moment, and saw a stranger's
    /// lock as we did, may have taken ours away for that.
    pub fn is_ours(&self) -> bool {
        self.identity.is_none() || identify(&self.path).ok() == self.identity
    }
}

/// Whether this is the file at the path.
fn is_at(path: &Path, file: &File) -> bool {
    let identity = |file: fs::Metadata| (file.dev(), file.ino());
    let (there, ours) = (fs::symlink_metadata(path), file.metadata());
    there.ok().map(identity) == ours.ok().map(identity)
}

/// Who has the lock on a file (`proc_locks(5)`). Where several have, the one that counts.
fn holder(file: &File, trusted: Trusted) -> Holder {
    let mut stranger = Holder::Nobody;
    let Ok(file) = file.metadata() else { return stranger };
    let id = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    for line in locks.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // What waits for a lock has an arrow in the second place.
        let [_, "FLOCK", _, _, pid, locked, ..] = words[..] else { continue };
        let Some(pid) = pid.parse().ok().filter(|_| locked == id) else { continue };
        match user_of(pid, trusted) {
            None if has_open(pid, &file) => return Holder::Instance(pid),
            // What locked the file is not what has its pid now.
            None => stranger = Holder::Stranger(Stranger { pid, user: None }),
            Some(user) => stranger = Holder::Stranger(Stranger { pid, user }),
        }
    }
    stranger
}

/// None: whom we trust, by every number that the process has; a program that runs with root's rights on
/// behalf of another has that one's number too. Otherwise the user, unless the process has ended.
#[expect(clippy::option_option, reason = "what is not told is not whom we trust")]
fn user_of(pid: u32, trusted: Trusted) -> Option<Option<u32>> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return Some(None) };
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut users = users.split_whitespace().map(|user| user.parse().unwrap_or(u32::MAX));
    users.find(|user| !trusted.includes(*user)).map(Some)
}

/// Whether a process has a file open, as far as can be seen.
fn has_open(pid: u32, file: &fs::Metadata) -> bool {
    let Ok(mut fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let is_it = |fd: fs::Metadata| (fd.dev(), fd.ino()) == (file.dev(), file.ino());
    fds.any(|fd| fd.is_ok_and(|fd| fs::metadata(fd.path()).is_ok_and(is_it)))
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another's by now: Neutron's agent removes
    /// the file itself as soon as it has sent SIGTERM, and may have started the next one.
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let removed = unlinkat(AT_FDCWD, self.path.as_c_str(), UnlinkatFlags::NoRemoveDir);
        if removed.is_err() {
            // Who has dropped to a user that may not remove it leaves it, but it names nobody.
            let _ = self.file.set_len(0);
        }
    }
}
