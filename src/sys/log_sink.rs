//! Destinations of the log besides standard error: a file or syslog.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Uid, geteuid};

use super::files::{c_path, is_at};
use super::own_file::{self, Refusal};
use crate::errno::Errno;

const APPEND: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND).union(OFlag::O_CREAT);

/// A log file, which can be reopened after a rotation.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: File,
    /// The user that the daemon runs as.
    user: Uid,
    /// The last line is incomplete: the disk was full.
    is_cut: bool,
}

impl LogFile {
    /// Opens or creates the file, mode 0644: see [`own_file::open`].
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let (name, user) = (c_path(path)?, geteuid());
        let file = own_file::open(&name, APPEND, user)?;
        Ok(Self { path: name, file, user, is_cut: false })
    }

    /// Reopens the path. On an error the old file stays open.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        let file = own_file::open(&self.path, APPEND, self.user)?;
        // Only the old file ends with a cut line.
        self.is_cut &= is_at(&self.path, &self.file) == Ok(true);
        self.file = file;
        Ok(())
    }

    /// Appends complete lines. Lines that cannot be written are lost.
    pub fn write(&mut self, lines: &[u8]) {
        if self.is_cut {
            self.is_cut = self.file.write(b"\n").is_err();
        }
        if let Ok(length @ 1..) = self.file.write(lines) {
            self.is_cut = length < lines.len();
        }
    }
}

/// The socket of the log daemon, which may be restarted.
const LOG_DAEMON: &str = "/dev/log";

#[derive(Debug)]
pub struct Syslog(UnixDatagram);

impl Syslog {
    /// Checks that the log daemon can be reached by datagrams. Sends nothing.
    pub fn check() -> Result<(), Errno> {
        Ok(UnixDatagram::unbound()?.connect(LOG_DAEMON)?)
    }

    /// Opens a socket. The log daemon need not run yet.
    pub fn open() -> Result<Self, Errno> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends one message. The socket is not connected, so that a restarted log daemon gets it.
    pub fn send(&self, message: &[u8]) {
        let _ = self.0.send_to(message, LOG_DAEMON);
    }
}
