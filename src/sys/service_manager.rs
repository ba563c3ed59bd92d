//! A service manager, which is told by datagrams how the daemon fares (`sd_notify(3)`).

use std::env;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::absolute;
use std::process::id;

use nix::errno::Errno as NixErrno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};
use nix::sys::stat::fstat;
use smoltcp::time::Duration;

use super::files::c_path;
use crate::errno::Errno;
use crate::wire::sd_notify::{Message, encode};

/// The shortest time from one sign of life to the next, and the longest, which is as good as any longer one.
const PERIODS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(3600)];

/// The service manager that has started the daemon.
#[derive(Debug)]
pub struct ServiceManager {
    socket: OwnedFd,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that `NOTIFY_SOCKET` names, which may want signs of life (`WATCHDOG_USEC`).
    ///
    /// # Errors
    /// The variable and what is wrong with it, in one line.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let socket = open(&path)
            .map_err(|errno| format!("NOTIFY_SOCKET {}: {}", path.display(), Errno::from(errno)))?;
        Ok(Some(Self { socket, watchdog: watchdog()? }))
    }

    /// From one sign of life to the next, if it wants any: half the time after which it gives the daemon up.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends a message, without waiting for room.
    pub fn send(&self, message: &Message<'_>) {
        // A manager that has gone misses nothing.
        let _ = send(self.socket.as_raw_fd(), encode(message).as_bytes(), MsgFlags::MSG_NOSIGNAL);
    }
}

/// Whether standard error is a stream to the journal (`JOURNAL_STREAM` of `systemd.exec(5)`).
pub fn stderr_is_journal() -> bool {
    let journal = env::var("JOURNAL_STREAM");
    fstat(std::io::stderr())
        .is_ok_and(|file| journal == Ok(format!("{}:{}", file.st_dev, file.st_ino)))
}

/// Opens the socket while there is the right to connect it.
fn open(path: &OsStr) -> nix::Result<OwnedFd> {
    let address = if let Some(name) = path.as_bytes().strip_prefix(b"@") {
        UnixAddr::new_abstract(name)?
    } else {
        // The daemon leaves the directory that it was started in.
        let path = absolute(path).map_err(|_| NixErrno::EINVAL)?;
        UnixAddr::new(c_path(&path)?.as_c_str())?
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    // A manager that is not there misses nothing.
    let _ = connect(socket.as_raw_fd(), &address);
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
