//! Who waits for the daemon to be up: the process that forked it, or a service manager (`sd_notify(3)`), which is
//! also sent the status, the end and signs of life.

use core::fmt::{Arguments, Write as _};
use std::env;
use std::ffi::OsStr;
use std::io::{self, PipeWriter, Write as _};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::id;

use nix::sys::stat::fstat;
use smoltcp::time::Duration;

use super::process::print_error;

/// The message to the parent once the daemon is up. Any other is an error for it to print.
pub(super) const UP: &str = "up";

/// Room for a message to the service manager in bytes; a longer one is cut. A status with all troubles has 300.
const MAX_LEN: usize = 512;

/// The shortest time between two signs of life, and the longest, which is as good as any longer one.
const PERIODS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(3600)];

/// The receiver of the readiness message.
#[derive(Debug)]
pub enum ReadinessNotifier {
    /// The process that forked the daemon, at the other end of this pipe.
    Parent(PipeWriter),
    /// A service manager.
    Manager(NotifySocket),
    /// No process waits, or no longer.
    Silent,
}

impl ReadinessNotifier {
    /// The service manager that `NOTIFY_SOCKET` names, if any, which may want signs of life (`WATCHDOG_USEC`).
    ///
    /// # Errors
    /// The variable and what is wrong with it, in one line.
    pub fn from_environment() -> Result<Self, String> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(Self::Silent) };
        let socket =
            connect(&path).map_err(|error| format!("NOTIFY_SOCKET {}: {error}", path.display()))?;
        Ok(Self::Manager(NotifySocket { socket, watchdog: watchdog()? }))
    }

    /// The service manager, if there is one.
    pub fn manager(&self) -> Option<&NotifySocket> {
        match self {
            Self::Manager(manager) => Some(manager),
            Self::Parent(_) | Self::Silent => None,
        }
    }

    /// Reports that the daemon is up, or to a service manager that a reload is complete.
    pub fn ready(&mut self) {
        match self {
            Self::Parent(pipe) => {
                let _ = pipe.write_all(UP.as_bytes());
                *self = Self::Silent;
            }
            Self::Manager(manager) => manager.send(format_args!("READY=1")),
            Self::Silent => {}
        }
    }

    /// Reports why the daemon does not come up: to the parent, which prints it, or on standard error.
    pub fn failed(&mut self, error: &str) {
        match self {
            Self::Parent(pipe) => {
                let _ = pipe.write_all(error.as_bytes());
            }
            Self::Manager(_) | Self::Silent => print_error(error),
        }
    }
}

/// A connection to the service manager that has started the daemon.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    /// The time between two signs of life, if it wants any: half the time after which it gives the daemon up.
    pub(crate) watchdog: Option<Duration>,
}

impl NotifySocket {
    /// Sends assignments of variables, a line each, without waiting for room.
    pub fn send(&self, assignments: Arguments<'_>) {
        let mut message = heapless::String::<MAX_LEN>::new();
        let _ = message.write_fmt(assignments);
        // A manager that has gone misses nothing.
        let _ = self.socket.send(message.as_bytes());
    }
}

/// Connects the socket while there is the right to do so.
fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    // A manager that is not there misses nothing.
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
    let [shortest, longest] = PERIODS;
    Ok(micros.map(|micros| Duration::from_micros(micros / 2).clamp(shortest, longest)))
}

/// Whether standard error is a stream to the journal (`JOURNAL_STREAM` of `systemd.exec(5)`).
pub fn stderr_is_journal() -> bool {
    let journal = env::var("JOURNAL_STREAM");
    fstat(io::stderr()).is_ok_and(|file| journal == Ok(format!("{}:{}", file.st_dev, file.st_ino)))
}
