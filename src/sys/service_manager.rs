//! Notifies the process that waits for the daemon to be up: its starter, or a service manager (`sd_notify(3)`). The
//! service manager also gets the status, the exit and watchdog messages.

use core::cell::Cell;
use core::fmt::{Arguments, Write as _};
use std::io::{PipeWriter, Write as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};

use smoltcp::time::{Duration, Instant};

use super::clock;
use super::stderr::print_error;
use crate::errno::Errno;

/// The message to the starter once the daemon is up. A message with a newline is a failure that the daemon retries. Any
/// other message is the error that ends the daemon.
pub(crate) const UP: &str = "up";

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
    /// Returns the service manager, if any.
    pub fn manager(&self) -> Option<&NotifySocket> {
        if let Self::Manager(manager) = self { Some(manager) } else { None }
    }

    /// Reports to the starter that the daemon is up.
    pub fn ready(&mut self) {
        if let Self::Parent(pipe) = self {
            // The pipe has room. An error means that the starter has ended, so no process waits.
            let _ = pipe.write_all(UP.as_bytes());
            *self = Self::Silent;
        }
    }

    /// Reports to the starter why the daemon is not up yet.
    pub fn not_yet(&mut self, failure: Arguments<'_>) {
        if let Self::Parent(pipe) = self {
            // As above; the core logs the failure as well.
            let _ = pipe.write_fmt(failure).and_then(|()| pipe.write_all(b"\n"));
        }
    }

    /// Reports the error that ends the daemon: to the starter, which prints it, or on standard error.
    pub fn failed(&mut self, error: &str) {
        if let Self::Parent(pipe) = self {
            // As above; the starter notices the end.
            let _ = pipe.write_all(error.as_bytes());
        } else {
            print_error(error);
        }
    }
}

/// The connection to a service manager.
#[derive(Debug)]
pub struct NotifySocket {
    pub(crate) socket: UnixDatagram,
    pub(crate) address: SocketAddr,
    pub(crate) is_connected: Cell<bool>,
    /// When to give up a manager that has not bound its socket.
    pub(crate) given_up_at: Instant,
    /// The time between two watchdog messages, if requested: half the manager's timeout.
    pub(crate) watchdog: Option<Duration>,
}

impl NotifySocket {
    /// Sends assignments of variables, a line each.
    ///
    /// # Errors
    /// `EAGAIN` while the socket has no room. The error of the connection, until the manager has bound its socket.
    pub fn send(&self, assignments: Arguments<'_>) -> Result<(), Errno> {
        if !self.is_connected.get() && clock::now() < self.given_up_at {
            self.socket.connect_addr(&self.address)?;
            self.is_connected.set(true);
        }
        let mut message = heapless::String::<MAX_LEN>::new();
        // A longer message is cut.
        let _ = message.write_fmt(assignments);
        match self.socket.send(message.as_bytes()).map_err(Errno::from) {
            Err(errno) if errno == Errno::TRY_AGAIN || errno.is_temporary() => Err(errno),
            // The manager is gone.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
