//! Where the log goes, if not to standard error: a file, syslog.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::sys::stat::Mode;
use nix::unistd::write;

use super::own_file::{self, Refusal};
use super::privileges::Identity;
use super::users::Trusted;
use crate::errno::Errno;

/// A log file that is appended to, and can be opened anew after it was moved away.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: OwnedFd,
    trusted: Trusted,
}

impl LogFile {
    /// Opens or creates the file, mode 0644. It belongs to `owner`, so that it can be opened again by whom the
    /// daemon is then.
    ///
    /// # Errors
    /// Why the file is refused: see [`own_file::open`].
    pub fn open(path: &Path, owner: Identity) -> Result<Self, Refusal> {
        let file = own_file::open(path, APPEND | OFlag::O_CREAT, owner, true)?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Known::EINVAL)?;
        Ok(Self { path, file, trusted: Trusted::new(owner.user) })
    }

    /// Opens the path again; the old file is kept if that fails, or if the new one may not be ours alone.
    ///
    /// # Errors
    /// Why the file is refused.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        let flags = APPEND | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        // A FIFO without a reader would block the open.
        let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mode = Mode::from_bits_truncate(0o644);
        let file = openat(AT_FDCWD, self.path.as_c_str(), flags, mode)?;
        own_file::check(&file, self.trusted)?;
        self.file = file;
        Ok(())
    }

    /// Appends complete lines. What cannot be written is lost: a log is not worth waiting for.
    pub fn write(&self, lines: &[u8]) {
        let _ = write(&self.file, lines);
    }
}

const APPEND: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND);

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
