//! The pid file and the log, which are opened as the user that the daemon runs as: root creates no file for that user.

use std::ffi::CStr;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open as open_path};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, geteuid};

use super::atomic_file;
use super::files::{SAFELY, c_path};
use crate::errno::Errno;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ELOOP` for a symlink, `EMLINK` for a file with several hard links, or the errno of a system call.
    Errno(Errno),
    /// It is a FIFO, a device or a socket.
    NotRegular,
    /// It belongs to this user.
    Foreign(u32),
    /// This user, who does not own the directory, can neither open nor create it.
    NotTheirs(u32),
    /// It is locked by this process.
    Held(String),
}

impl Refusal {
    /// Returns whether retries fail until an administrator changes something.
    pub fn lasts(&self) -> bool {
        use NixErrno::{EACCES, EISDIR, ELOOP, EMLINK, ENOTDIR, EPERM};
        match self {
            Self::Errno(Errno(errno)) => matches!(
                NixErrno::from_raw(*errno),
                EACCES | EISDIR | ELOOP | EMLINK | ENOTDIR | EPERM
            ),
            Self::NotRegular | Self::Foreign(_) | Self::NotTheirs(_) => true,
            Self::Held(_) => false,
        }
    }
}

impl<E: Into<Errno>> From<E> for Refusal {
    fn from(errno: E) -> Self {
        Self::Errno(errno.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => match NixErrno::from_raw(errno.0) {
                NixErrno::ELOOP => f.write_str("a symlink, which is not followed (ELOOP)"),
                NixErrno::EMLINK => f.write_str("has several hard links (EMLINK)"),
                _ => errno.fmt(f),
            },
            Self::NotRegular => f.write_str("not a regular file"),
            Self::Foreign(user) => write!(f, "belongs to user {user}"),
            Self::NotTheirs(user) => {
                let denied = Errno::from(NixErrno::EACCES);
                write!(f, "{denied}: expected a directory that belongs to user {user}")
            }
            Self::Held(holder) => write!(f, "held by {holder}"),
        }
    }
}

/// Opens a file, or creates it with mode 0644 if `flags` have `O_CREAT`. It must be a regular file with one name that
/// belongs to root or to `user`, the user of this process. Allocates nothing.
pub fn open(path: &CStr, flags: OFlag, user: Uid) -> Result<File, Refusal> {
    let open = |flags| open_path(path, flags | SAFELY, Mode::from_bits_truncate(0o644));
    // In a sticky directory O_CREAT may fail for an existing file (`fs.protected_regular`).
    let opened = open(flags - OFlag::O_CREAT).or_else(|errno| match errno {
        NixErrno::ENOENT => open(flags),
        _ => Err(errno),
    });
    let file = match opened {
        // A socket, or a FIFO without a reader (`open(2)`).
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

/// Renames a file that could not be opened, such as the file of a predecessor that ran as root.
pub fn set_aside(path: &Path, refusal: Refusal) -> Result<(), Refusal> {
    check_directory(path, refusal)?;
    let mut aside = path.as_os_str().to_owned();
    aside.push(".predecessor");
    Ok(fs::rename(path, aside)?)
}

/// Checks whether [`open`] would open or create a file, or would after [`set_aside`]. Changes nothing.
pub fn examine(path: &Path) -> Result<(), Refusal> {
    let opened = match open(&c_path(path)?, OFlag::O_WRONLY, geteuid()).map(drop) {
        Err(Refusal::Errno(Errno::NOT_FOUND)) => atomic_file::examine(path).map_err(Refusal::from),
        opened => opened,
    };
    opened.or_else(|refusal| check_directory(path, refusal))
}

/// Checks that this user can rename a file whose opening failed with `EACCES`. The error is any other `refusal` to open it,
/// or the defect of its directory.
pub fn check_directory(path: &Path, refusal: Refusal) -> Result<(), Refusal> {
    let user = geteuid().as_raw();
    if refusal != NixErrno::EACCES.into() {
        return Err(refusal);
    }
    if fs::metadata(path.parent().unwrap_or(path))?.uid() != user {
        return Err(Refusal::NotTheirs(user));
    }
    // A mount point cannot be renamed.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&path)) {
        return Err(NixErrno::EBUSY.into());
    }
    Ok(atomic_file::examine(&path)?)
}
