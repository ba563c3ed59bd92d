//! Where the log goes: a file, standard error, syslog.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{fchown, write};

use super::privileges::Identity;
use crate::errno::Errno;

/// A log file that is appended to, and can be opened anew after it was moved away.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: OwnedFd,
}

impl LogFile {
    /// Opens or creates the file, mode 0644. A file that is created belongs to `owner`, so that it can
    /// be opened again by whom the daemon is then.
    ///
    /// Root must not be led to append to just any file: a symlink is not followed, and a file with
    /// another name elsewhere is refused.
    ///
    /// # Errors
    /// The errno of the step that failed; `ELOOP` for a symlink, `EMLINK` for a file of several names.
    pub fn open(path: &Path, owner: Identity) -> Result<Self, Errno> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Known::EINVAL)?;
        let created = append(&path, OFlag::O_CREAT | OFlag::O_EXCL);
        let file = match created {
            Err(Known::EEXIST) => append(&path, OFlag::empty())?,
            created => {
                let file = created?;
                fchown(&file, owner.user, owner.group)?;
                file
            }
        };
        let stat = fstat(&file)?;
        let is_regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        if is_regular && stat.st_nlink > 1 {
            return Err(Known::EMLINK.into());
        }
        Ok(Self { path, file })
    }

    /// Opens the path again; the old file is kept if that fails.
    ///
    /// # Errors
    /// The errno of `open`.
    pub fn reopen(&mut self) -> Result<(), Errno> {
        self.file = append(&self.path, OFlag::O_CREAT)?;
        Ok(())
    }

    /// Appends complete lines. What cannot be written is lost: a log is not worth waiting for.
    pub fn write(&self, lines: &[u8]) {
        let _ = write(&self.file, lines);
    }
}

fn append(path: &CString, more: OFlag) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    // A FIFO without a reader would block the open, and a full one the writes.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | more;
    openat(AT_FDCWD, path.as_c_str(), flags, Mode::from_bits_truncate(0o644))
}

/// Writes complete lines to standard error, if it takes them at once: it may be a pipe that nobody
/// reads.
pub fn write_stderr(lines: &[u8]) {
    let stderr = std::io::stderr();
    // The flag O_NONBLOCK would be shared with every other process that has the same pipe.
    if is_writable(stderr.as_fd()) {
        let _ = write(&stderr, lines);
    }
}

fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT))
}

/// The socket of the system's log daemon.
#[derive(Debug)]
pub struct Syslog {
    socket: OwnedFd,
    address: UnixAddr,
}

impl Syslog {
    /// Prepares to send to `/dev/log`, whether or not somebody listens there yet.
    ///
    /// # Errors
    /// The errno of `socket`.
    pub fn open() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok(Self { socket, address: UnixAddr::new("/dev/log")? })
    }

    /// Sends one message. Not being connected, it finds a log daemon that was restarted.
    pub fn send(&self, message: &[u8]) {
        let _ = sendto(self.socket.as_raw_fd(), message, &self.address, MsgFlags::MSG_DONTWAIT);
    }
}
