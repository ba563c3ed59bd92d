//! Files that are opened as the user that the daemon runs as: the pid file, the log, and the state file of a
//! predecessor. Root creates no file for that user.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open as open_path};
use nix::sys::stat::Mode;
use nix::unistd::Uid;

use super::files::SAFELY;
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
    /// It is locked by another process, which this text names. Only the start returns it, as that allocates.
    Held(Box<str>),
}

impl Refusal {
    /// Returns whether retries fail until an administrator changes something.
    pub fn lasts(&self) -> bool {
        use NixErrno::{EACCES, EBUSY, EISDIR, ELOOP, EMLINK, ENAMETOOLONG, ENOTDIR, EPERM, EROFS};
        match self {
            Self::Errno(Errno(errno)) => matches!(
                NixErrno::from_raw(*errno),
                EACCES | EBUSY | EISDIR | ELOOP | EMLINK | ENAMETOOLONG | ENOTDIR | EPERM | EROFS
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
