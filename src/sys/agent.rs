//! The connection to the agent: nonblocking throughout.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::errno::Errno as NixErrno;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Uid;

use crate::errno::Errno;
use crate::monitor::{Failure, Outcome};
use crate::wire::http::{Reply, ReplyReader, Request};

/// How many bytes an agent may send after its status line before the connection is closed.
const MAX_REST: usize = 65_536;

/// The agent's socket, and at most one connection to it.
#[derive(Debug)]
pub struct Agent {
    address: SocketAddr,
    directory: PathBuf,
    /// The user that the daemon runs as.
    own: Uid,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    reply: ReplyReader,
    delivered: bool,
    /// Bytes received after the status line.
    rest: usize,
}

impl Agent {
    /// Stores the path; the socket need not exist. `ENAMETOOLONG` if the path has more than 107 bytes. To be called
    /// as the user that the daemon runs as.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        Ok(Self {
            address: SocketAddr::from_pathname(path).map_err(|_| NixErrno::ENAMETOOLONG)?,
            directory: path.parent().unwrap_or(path).into(),
            own: Uid::effective(),
            connection: None,
        })
    }

    /// Connects and sends the request. Closes an older connection, and on failure this one.
    ///
    /// [`Agent::advance`], to be called when the poll reports `token`, returns the reply.
    pub fn notify(
        &mut self,
        request: &Request,
        registry: &Registry,
        token: Token,
    ) -> Result<(), Failure> {
        self.connection = None;
        // A Unix socket connects at once or fails, with EAGAIN if the backlog is full.
        let mut stream =
            UnixStream::connect_addr(&self.address).map_err(|error| failure(error.into()))?;
        self.check_trust(&stream)?;
        // A new socket has room for all of it (`unix_stream_sendmsg`).
        stream.write_all(request).map_err(|error| failure(error.into()))?;
        // Registering also reports what has come already.
        registry
            .register(&mut stream, token, Interest::READABLE)
            .map_err(|error| Failure::Socket(error.into()))?;
        let reply = ReplyReader::default();
        self.connection = Some(Connection { stream, reply, delivered: false, rest: 0 });
        Ok(())
    }

    /// The listener must be root, the user that the daemon runs as, or the owner of the socket's directory.
    /// Anybody else may have put a socket there to learn the state or to keep it from the agent.
    fn check_trust(&self, stream: &UnixStream) -> Result<(), Failure> {
        let listener = getsockopt(stream, sockopt::PeerCredentials)
            .map_err(|errno| Failure::Socket(errno.into()))?
            .uid();
        let trusted = listener == 0
            || listener == self.own.as_raw()
            || fs::metadata(&self.directory).is_ok_and(|found| found.uid() == listener);
        if trusted { Ok(()) } else { Err(Failure::Untrusted(listener)) }
    }

    /// Reads as far as the socket allows. To be called until it returns `None`.
    pub fn advance(&mut self) -> Option<Outcome> {
        let outcome = self.connection.as_mut()?.advance()?;
        if outcome != Outcome::Delivered {
            self.connection = None;
        }
        Some(outcome)
    }

    /// Whether a request awaits its reply.
    pub fn is_waiting(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.delivered)
    }

    /// Closes the connection, which also removes it from the poll, as the reply has taken too long.
    pub fn hang_up(&mut self) -> Outcome {
        self.connection = None;
        Outcome::Failed(Failure::TimedOut)
    }
}

impl Connection {
    fn advance(&mut self) -> Option<Outcome> {
        let mut buffer = [0; 512];
        loop {
            let bytes = match self.stream.read(&mut buffer) {
                Ok(length) => buffer.get(..length)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) if self.delivered => return Some(Outcome::Closed),
                Err(error) => return Some(Outcome::Failed(failure(error.into()))),
            };
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

/// The failure for an errno of a socket. An agent that closes it without having read everything resets the connection.
fn failure(errno: Errno) -> Failure {
    match NixErrno::from_raw(errno.0) {
        NixErrno::ENOENT => Failure::NoSocket,
        NixErrno::ECONNREFUSED => Failure::Refused,
        NixErrno::EAGAIN => Failure::BacklogFull,
        NixErrno::EACCES | NixErrno::EPERM => Failure::NoPermission,
        NixErrno::EPIPE | NixErrno::ECONNRESET => Failure::ClosedEarly,
        _ => Failure::Socket(errno),
    }
}
