//! Where the log goes beside standard error: a file or syslog.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Uid, geteuid};

use super::files::c_path;
use super::own_file::{self, Refusal};
use crate::errno::Errno;

const APPEND: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND).union(OFlag::O_CREAT);

/// A log file, which can be reopened after it was moved away.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: File,
    /// The user that the daemon runs as.
    user: Uid,
    /// The last line is not complete, as the disk was full.
    is_cut: bool,
}

impl LogFile {
    /// Opens or creates the file, mode 0644: see [`own_file::open`].
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let (path, user) = (c_path(path)?, geteuid());
        Ok(Self { file: own_file::open(&path, APPEND, user)?, path, user, is_cut: false })
    }

    /// Reopens the path. The old file is kept if that fails or the new one is refused.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        self.file = own_file::open(&self.path, APPEND, self.user)?;
        Ok(())
    }

    /// Appends complete lines. Those that cannot be written are lost.
    pub fn write(&mut self, lines: &[u8]) {
        if self.is_cut {
            self.is_cut = self.file.write(b"\n").is_err();
        }
        if let Ok(length @ 1..) = self.file.write(lines) {
            self.is_cut = length < lines.len();
        }
    }
}

#[derive(Debug)]
pub struct Syslog {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Syslog {
    /// Prepares to send to `/dev/log`, which need not exist yet.
    pub fn open() -> Result<Self, Errno> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address: SocketAddr::from_pathname("/dev/log")? })
    }

    /// Sends one message. The socket is not connected, so that a restarted log daemon gets it.
    pub fn send(&self, message: &[u8]) {
        let _ = self.socket.send_to_addr(message, &self.address);
    }
}
