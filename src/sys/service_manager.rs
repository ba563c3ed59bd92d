//! Notifies the process that waits for the daemon to be up: its starter, or a service manager (`sd_notify(3)`). The
//! service manager also gets the status, the exit and watchdog messages.

use core::fmt::{Arguments, Write as _};
use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, PipeWriter, Write as _};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::id;

use smoltcp::time::Duration;

use super::stderr::print_error;
use crate::errno::Errno;

/// The message to the starter once the daemon is up. A message with a newline is a failure that the daemon retries. Any
/// other message is the error that ends the daemon.
pub(super) const UP: &str = "up";

/// The longest message to the service manager in bytes; a longer one is cut. A status with all troubles has 300.
const MAX_LEN: usize = 512;

/// The receiver of the readiness message.
#[derive(Debug)]
pub enum ReadinessNotifier {
    /// The starter, at the other end of this pipe.
    Parent(PipeWriter),
    /// A service manager.
    Manager(NotifySocket),
    /// No process waits.
    Silent,
}

impl ReadinessNotifier {
    /// Connects to the service manager in `NOTIFY_SOCKET`, if any. `WATCHDOG_USEC` requests watchdog messages.
    ///
    /// # Errors
    /// One line with the variable and its error.
    pub fn from_environment() -> Result<Self, String> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(Self::Silent) };
        let socket =
            connect(&path).map_err(|error| format!("NOTIFY_SOCKET {}: {error}", path.display()))?;
        Ok(Self::Manager(NotifySocket { socket, watchdog: watchdog()? }))
    }

    /// Returns the service manager, if any.
    pub fn manager(&self) -> Option<&NotifySocket> {
        if let Self::Manager(manager) = self { Some(manager) } else { None }
    }

    /// Reports to the starter that the daemon is up.
    pub fn ready(&mut self) {
        if let Self::Parent(pipe) = self {
            let _ = pipe.write_all(UP.as_bytes());
            *self = Self::Silent;
        }
    }

    /// Reports to the starter why the daemon is not up yet.
    pub fn not_yet(&mut self, failure: Arguments<'_>) {
        if let Self::Parent(pipe) = self {
            let _ = pipe.write_fmt(failure).and_then(|()| pipe.write_all(b"\n"));
        }
    }

    /// Reports the error that ends the daemon: to the starter, which prints it, or on standard error.
    pub fn failed(&mut self, error: &str) {
        if let Self::Parent(pipe) = self {
            let _ = pipe.write_all(error.as_bytes());
        } else {
            print_error(error);
        }
    }
}

/// The connection to a service manager.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    /// The time between two watchdog messages, if requested: half the manager's timeout.
    pub(crate) watchdog: Option<Duration>,
}

impl NotifySocket {
    /// Sends assignments of variables, a line each.
    ///
    /// # Errors
    /// `EAGAIN` while the socket has no room.
    pub fn send(&self, assignments: Arguments<'_>) -> Result<(), Errno> {
        let mut message = heapless::String::<MAX_LEN>::new();
        let _ = message.write_fmt(assignments);
        match self.socket.send(message.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error.into()),
            // The manager is gone.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Opens and connects the socket, as the daemon may lose the right to connect.
fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    // Without a manager, messages are lost.
    let _ = socket.connect_addr(&address);
    Ok(socket)
}

fn watchdog() -> Result<Option<Duration>, String> {
    let number = |name: &str| {
        let Some(text) = env::var_os(name) else { return Ok(None) };
        let number = text.to_str().and_then(|text| text.parse::<u64>().ok());
        let error = || format!("{name} {}: expected a positive number", text.display());
        number.filter(|number| *number > 0).ok_or_else(error).map(Some)
    };
    let pid = number("WATCHDOG_PID")?;
    let micros = number("WATCHDOG_USEC")?.filter(|_| pid.is_none_or(|pid| pid == id().into()));
    // From a millisecond to an hour.
    Ok(micros.map(|micros| Duration::from_micros((micros / 2).clamp(1_000, 3_600_000_000))))
}
