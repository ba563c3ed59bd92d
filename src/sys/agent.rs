//! The connection to the agent: nonblocking throughout.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::errno::Errno as NixErrno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use nix::unistd::Uid;

use super::trust;
use crate::errno::Errno;
use crate::monitor::{Failure, Outcome};
use crate::wire::http::{Reply, ReplyReader, Request};

/// How many bytes an agent may send after its status line before the connection is closed.
const MAX_REST: usize = 65_536;

/// The socket's flags.
pub const SOCKET_FLAGS: SockFlag = SockFlag::SOCK_NONBLOCK.union(SockFlag::SOCK_CLOEXEC);

/// The agent's socket, and at most one connection to it.
#[derive(Debug)]
pub struct Agent {
    address: UnixAddr,
    /// The directory of the socket.
    directory: PathBuf,
    /// The user that the daemon runs as.
    own: Uid,
    /// See [`trust::unknown`].
    unknown: Option<u32>,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    request: Request,
    sent: usize,
    reply: ReplyReader,
    delivered: bool,
    /// The agent has closed its end.
    closed: bool,
    /// The last read emptied the socket.
    drained: bool,
    /// Bytes received after the status line.
    rest: usize,
}

impl Agent {
    /// Stores the path; the socket need not exist. To be called as the user that the daemon runs as.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if the path is too long for a Unix socket (107 bytes).
    pub fn new(path: &Path) -> Result<Self, Errno> {
        Ok(Self {
            address: UnixAddr::new(path)?,
            directory: path.parent().unwrap_or(path).into(),
            own: Uid::effective(),
            unknown: trust::unknown(),
            connection: None,
        })
    }

    /// Connects and sends the request, in one write if the socket has room for it.
    ///
    /// Closes an older connection. [`Agent::advance`], to be called when the poll reports `token`, returns the
    /// reply.
    ///
    /// # Errors
    /// The failure. The connection is closed then.
    pub fn notify(
        &mut self,
        request: &Request,
        registry: &Registry,
        token: Token,
    ) -> Result<(), Failure> {
        self.hang_up();
        let stream = self.connect().map_err(|errno| connecting(errno.into()))?;
        self.check_trust(&stream)?;
        let mut connection = Connection {
            stream,
            request: request.clone(),
            sent: 0,
            reply: ReplyReader::default(),
            delivered: false,
            closed: false,
            drained: false,
            rest: 0,
        };
        connection.send()?;
        let sent = connection.sent == connection.request.len();
        let interest =
            if sent { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        // Registering also reports what has come already.
        registry
            .register(&mut connection.stream, token, interest)
            .map_err(|error| Failure::Socket(error.into()))?;
        self.connection = Some(connection);
        Ok(())
    }

    /// A Unix socket connects at once or fails, with EAGAIN if the backlog is full. As mio, but with the address in
    /// read-only memory, which the seccomp filter demands.
    fn connect(&self) -> nix::Result<UnixStream> {
        let socket = socket(AddressFamily::Unix, SockType::Stream, SOCKET_FLAGS, None)?;
        connect(socket.as_raw_fd(), &self.address)?;
        Ok(UnixStream::from_std(net::UnixStream::from(socket)))
    }

    /// The listener must be root, the user that the daemon runs as, or the owner of the socket's directory.
    /// Anybody else may have put a socket there to learn the state or to keep it from the agent.
    fn check_trust(&self, stream: &UnixStream) -> Result<(), Failure> {
        let listener = getsockopt(stream, sockopt::PeerCredentials)
            .map_err(|errno| Failure::Socket(errno.into()))?
            .uid();
        let trusted = Some(listener) != self.unknown
            && (listener == 0
                || listener == self.own.as_raw()
                || fs::metadata(&self.directory).is_ok_and(|found| found.uid() == listener));
        if trusted { Ok(()) } else { Err(Failure::Untrusted(listener)) }
    }

    /// Handles the poll's report that the agent has closed its end.
    pub fn on_closed(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.closed = true;
        }
    }

    /// Sends and reads as far as the socket allows. To be called until it returns `None`.
    pub fn advance(&mut self) -> Option<Outcome> {
        let outcome = self.connection.as_mut()?.advance()?;
        if outcome != Outcome::Delivered {
            self.hang_up();
        }
        Some(outcome)
    }

    /// Whether a request awaits its reply.
    pub fn is_waiting(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.delivered)
    }

    /// Closes the connection, which also removes it from the poll. Returns whether there was one.
    pub fn hang_up(&mut self) -> bool {
        self.connection.take().is_some()
    }
}

impl Connection {
    fn send(&mut self) -> Result<(), Failure> {
        while let Some(rest) = self.request.get(self.sent..)
            && !rest.is_empty()
        {
            match self.stream.write(rest) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(connected(error.into())),
            }
        }
        Ok(())
    }

    fn advance(&mut self) -> Option<Outcome> {
        if let Err(failure) = self.send() {
            return Some(Outcome::Failed(failure));
        }
        let mut buffer = [0; 512];
        loop {
            if self.delivered && self.drained && self.closed {
                return Some(Outcome::Closed);
            }
            let bytes = match self.stream.read(&mut buffer) {
                Ok(length) => buffer.get(..length)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) if self.delivered => return Some(Outcome::Closed),
                Err(error) => return Some(Outcome::Failed(connected(error.into()))),
            };
            self.drained = bytes.len() < buffer.len();
            if self.delivered {
                self.rest += bytes.len();
                if bytes.is_empty() || self.rest > MAX_REST {
                    return Some(Outcome::Closed);
                }
                continue;
            }
            if bytes.is_empty() {
                return Some(Outcome::Failed(Failure::ClosedEarly));
            }
            match self.reply.push(bytes) {
                Reply::Incomplete => {}
                Reply::Status(200) => {
                    self.delivered = true;
                    return Some(Outcome::Delivered);
                }
                Reply::Status(other) => return Some(Outcome::Failed(Failure::Status(other))),
                Reply::Malformed => return Some(Outcome::Failed(Failure::Malformed)),
            }
        }
    }
}

/// The failure for an errno of `connect`.
fn connecting(errno: Errno) -> Failure {
    match NixErrno::from_raw(errno.0) {
        NixErrno::ENOENT => Failure::NoSocket,
        NixErrno::ECONNREFUSED => Failure::Refused,
        NixErrno::EAGAIN => Failure::BacklogFull,
        NixErrno::EACCES | NixErrno::EPERM => Failure::NoPermission,
        _ => Failure::Socket(errno),
    }
}

/// The failure for an errno of a connected socket. An agent that closes it without having read everything resets
/// the connection.
fn connected(errno: Errno) -> Failure {
    match NixErrno::from_raw(errno.0) {
        NixErrno::EPIPE | NixErrno::ECONNRESET => Failure::ClosedEarly,
        _ => Failure::Socket(errno),
    }
}
