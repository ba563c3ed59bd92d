//! Where the log goes beside standard error: a file or syslog.

use core::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::sys::stat::Mode;
use nix::unistd::write;

use super::constants::{Constant, Constants};
use super::own_file::{self, Refusal, SAFELY};
use super::privileges::RunAs;
use super::trust::Trusted;
use crate::errno::Errno;

/// A log file, which can be reopened after it was moved away.
#[derive(Debug)]
pub struct LogFile {
    path: &'static CStr,
    file: OwnedFd,
    trusted: Trusted,
}

impl LogFile {
    /// Opens or creates the file, mode 0644. It is given to `owner`, so that the daemon can reopen it.
    ///
    /// # Errors
    /// Why the file is refused: see [`own_file::open`].
    pub fn open(path: &Path, owner: RunAs, constants: &mut Constants) -> Result<Self, Refusal> {
        let file = own_file::open(path, APPEND | OFlag::O_CREAT, owner, true)?;
        let path = constants.path(Constant::Log, path).map_err(Refusal::Errno)?;
        Ok(Self { path, file, trusted: Trusted::new(owner.user) })
    }

    /// Reopens the path. The old file is kept if that fails or the new one is refused.
    ///
    /// # Errors
    /// Why the file is refused.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        let mode = Mode::from_bits_truncate(0o644);
        let file = openat(AT_FDCWD, self.path, AGAIN, mode)?;
        own_file::check(&file, self.trusted)?;
        self.file = file;
        Ok(())
    }

    /// Appends complete lines. Those that cannot be written are lost.
    pub fn write(&self, lines: &[u8]) {
        let _ = write(&self.file, lines);
    }
}

const APPEND: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND);

/// Flags for reopening.
pub const AGAIN: OFlag = APPEND.union(OFlag::O_CREAT).union(SAFELY);

/// A socket for syslog.
#[derive(Debug)]
pub struct Syslog {
    socket: OwnedFd,
    address: &'static UnixAddr,
}

impl Syslog {
    /// Prepares to send to `/dev/log`, which need not exist yet.
    ///
    /// # Errors
    /// The errno of `socket`.
    pub fn open(constants: &mut Constants) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        let address = constants.address(Constant::Syslog, Path::new("/dev/log"))?;
        Ok(Self { socket, address })
    }

    /// Sends one message. The socket is not connected, so that a restarted log daemon gets it.
    pub fn send(&self, message: &[u8]) {
        let _ = sendto(self.socket.as_raw_fd(), message, self.address, MsgFlags::MSG_DONTWAIT);
    }
}
