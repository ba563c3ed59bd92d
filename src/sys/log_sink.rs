//! Where the log goes beside standard error: a file or syslog.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::unistd::{Uid, geteuid, write};

use super::files::c_path;
use super::own_file::{self, Refusal};
use crate::errno::Errno;

/// How the log is opened.
const APPEND: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND).union(OFlag::O_CREAT);

/// A log file, which can be reopened after it was moved away.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: File,
    /// The user that the daemon runs as.
    user: Uid,
}

impl LogFile {
    /// Opens or creates the file, mode 0644.
    ///
    /// # Errors
    /// Why the file is refused: see [`own_file::open`].
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let (path, user) = (c_path(path)?, geteuid());
        Ok(Self { file: own_file::open(&path, APPEND, user)?, path, user })
    }

    /// Reopens the path. The old file is kept if that fails or the new one is refused.
    ///
    /// # Errors
    /// Why the file is refused.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        self.file = own_file::open(&self.path, APPEND, self.user)?;
        Ok(())
    }

    /// Appends complete lines. Those that cannot be written are lost.
    pub fn write(&self, lines: &[u8]) {
        let _ = write(&self.file, lines);
    }
}

/// A socket for syslog.
#[derive(Debug)]
pub struct Syslog {
    socket: OwnedFd,
    address: UnixAddr,
}

impl Syslog {
    /// Prepares to send to `/dev/log`, which need not exist yet.
    ///
    /// # Errors
    /// The errno of `socket`.
    pub fn open() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok(Self { socket, address: UnixAddr::new("/dev/log")? })
    }

    /// Sends one message. The socket is not connected, so that a restarted log daemon gets it.
    pub fn send(&self, message: &[u8]) {
        let _ = sendto(self.socket.as_raw_fd(), message, &self.address, MsgFlags::MSG_DONTWAIT);
    }
}
