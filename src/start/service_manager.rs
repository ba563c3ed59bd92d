//! Finds the service manager in the environment.

use core::cell::Cell;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::id;

use crate::monitor::Duration;
use crate::sys::clock;
use crate::sys::service_manager::{NotifySocket, ReadinessNotifier};

/// How long to try to connect to a manager that binds its socket after it has started the daemon.
const BIND_LIMIT: Duration = Duration::from_secs(120);

/// Connects to the service manager in `NOTIFY_SOCKET`, if any. `WATCHDOG_USEC` requests watchdog messages.
///
/// # Errors
/// One line with the variable and its error.
pub fn from_environment() -> Result<ReadinessNotifier, String> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(ReadinessNotifier::Silent) };
    let manager =
        connect(&path).map_err(|error| format!("NOTIFY_SOCKET {}: {error}", path.display()))?;
    Ok(ReadinessNotifier::Manager(NotifySocket { watchdog: watchdog()?, ..manager }))
}

/// Opens the socket, and connects it if it can be, as the daemon may lose the right to.
fn connect(path: &OsStr) -> io::Result<NotifySocket> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let is_connected = Cell::new(socket.connect_addr(&address).is_ok());
    let given_up_at = clock::now() + BIND_LIMIT;
    Ok(NotifySocket { socket, address, is_connected, given_up_at, watchdog: None })
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
