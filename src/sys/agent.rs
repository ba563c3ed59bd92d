//! The nonblocking connection to the agent.

use core::mem::replace;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::errno::Errno as NixErrno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use nix::unistd::Uid;

use crate::errno::Errno;
use crate::monitor::{Failure, Outcome};
use crate::sys::files::{self, FileId};
use crate::wire::http::{Reply, ReplyReader, Request};

/// How many bytes an agent may send after its status line before the connection is closed.
const MAX_REST: usize = 65_536;

/// The agent's socket, and at most one connection to it.
#[derive(Debug)]
pub struct Agent {
    address: UnixAddr,
    /// The user that the daemon runs as.
    own: Uid,
    exchange: Option<Exchange>,
    /// The socket of the next attempt. It is made beforehand, as that costs as much as the attempt.
    unconnected: Option<OwnedFd>,
    /// The socket that answered the last request with 200.
    answered: Option<FileId>,
}

/// A request and its reply, on a connection of their own.
#[derive(Debug)]
struct Exchange {
    /// The agent's socket at the path just before the connection.
    agent: Option<FileId>,
    stream: UnixStream,
    reply: ReplyReader,
    delivered: bool,
    /// Bytes received after the status line.
    rest: usize,
    /// Everything that came before the last event has been read.
    is_drained: bool,
    /// The last event said that the agent sends nothing more.
    is_closed: bool,
}

impl Agent {
    /// Stores the path and this process's user, and makes the first socket; the agent's need not exist. `ENAMETOOLONG`
    /// beyond 107 bytes, or the errno of `socket(2)`.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        Ok(Self {
            address: UnixAddr::new(path)?,
            own: Uid::effective(),
            exchange: None,
            unconnected: Some(new_socket()?),
            answered: None,
        })
    }

    /// Connects and sends the request, then closes an older connection. [`Agent::advance`] returns the reply.
    pub fn notify(
        &mut self,
        request: &Request,
        registry: &Registry,
        token: Token,
    ) -> Result<(), Failure> {
        let older = self.exchange.take();
        let agent = self.socket_id();
        let socket = self.unconnected.take().map_or_else(new_socket, Ok).map_err(failure)?;
        // A Unix socket connects at once or fails, with EAGAIN if the backlog is full.
        if let Err(errno) = connect(socket.as_raw_fd(), &self.address) {
            self.unconnected = Some(socket);
            return Err(failure(errno));
        }
        let mut stream = UnixStream::from_std(socket.into());
        self.check_trust(&stream)?;
        // A new socket has room for all of it (`unix_stream_sendmsg`).
        stream.write_all(request).map_err(failure)?;
        drop(older);
        // Without descriptors, the next attempt makes one, and reports the error.
        self.unconnected = new_socket().ok();
        // Registering also reports bytes already received.
        registry
            .register(&mut stream, token, Interest::READABLE)
            .map_err(|error| Failure::Socket(error.into()))?;
        self.exchange = Some(Exchange {
            agent,
            stream,
            reply: ReplyReader::default(),
            delivered: false,
            rest: 0,
            is_drained: false,
            is_closed: false,
        });
        Ok(())
    }

    /// Handles an event of the connection: there is something to read. `is_closed`: the agent sends nothing more.
    pub fn handle_event(&mut self, is_closed: bool) {
        if let Some(exchange) = &mut self.exchange {
            (exchange.is_drained, exchange.is_closed) = (false, is_closed);
        }
    }

    fn socket_id(&self) -> Option<FileId> {
        files::identity(self.address.path()?)
    }

    /// Returns whether the socket that answered 200 last was replaced. Does not connect: that would be a notification.
    pub fn is_replaced(&self) -> bool {
        self.answered.is_some() && self.answered != self.socket_id()
    }

    /// Checks that the listener is root, the daemon's user or the owner of the directory, and so no interceptor.
    fn check_trust(&self, stream: &UnixStream) -> Result<(), Failure> {
        let listener = getsockopt(stream, sockopt::PeerCredentials)
            .map_err(|errno| Failure::Socket(errno.into()))?
            .uid();
        let directory = self.address.path().and_then(Path::parent);
        // Of an unknown owner no agent is trusted, and the log says so.
        let owner = || Some(fs::metadata(directory?).ok()?.uid());
        let is_own = listener == self.own.as_raw();
        let is_trusted = listener == 0 || is_own || owner() == Some(listener);
        if is_trusted { Ok(()) } else { Err(Failure::Untrusted(listener)) }
    }

    /// Reads as far as the socket allows. Must be called until it returns `None`.
    pub fn advance(&mut self) -> Option<Outcome> {
        let exchange = self.exchange.as_mut()?;
        let mut outcome = exchange.advance()?;
        if let Outcome::Delivered { by_another } = &mut outcome {
            let before = replace(&mut self.answered, exchange.agent);
            *by_another = before.is_some() && before != self.answered;
        } else {
            self.exchange = None;
        }
        Some(outcome)
    }

    /// Returns whether a request awaits its reply.
    pub fn is_waiting(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| !exchange.delivered)
    }

    /// Reads a reply that has taken too long. Without one, closes the connection, which also removes it from the poll.
    pub fn hang_up(&mut self) -> Outcome {
        self.handle_event(false);
        self.advance().unwrap_or_else(|| {
            self.exchange = None;
            Outcome::Failed(Failure::TimedOut)
        })
    }
}

impl Exchange {
    /// Reads until there is an outcome. After any but `Delivered` the exchange has ended.
    fn advance(&mut self) -> Option<Outcome> {
        let failed = |failure| Some(Outcome::Failed(failure));
        let mut buffer = [0; 512];
        loop {
            let bytes = if self.is_drained && self.is_closed {
                &[]
            } else if self.is_drained {
                return None;
            } else {
                match self.stream.read(&mut buffer) {
                    Ok(length) => buffer.get(..length)?,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                    Err(_) if self.delivered => return Some(Outcome::Closed),
                    Err(error) => return failed(failure(error)),
                }
            };
            // A short read leaves nothing behind (`epoll(7)`).
            self.is_drained = bytes.len() < buffer.len();
            if self.delivered {
                self.rest += bytes.len();
                if bytes.is_empty() || self.rest > MAX_REST {
                    return Some(Outcome::Closed);
                }
                continue;
            }
            if bytes.is_empty() {
                return failed(Failure::ClosedEarly);
            }
            match self.reply.push(bytes) {
                Reply::Incomplete => {}
                Reply::Status(200) => {
                    self.delivered = true;
                    return Some(Outcome::Delivered { by_another: false });
                }
                Reply::Status(other) => return failed(Failure::Status(other)),
                Reply::Malformed => return failed(Failure::Malformed),
            }
        }
    }
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// Classifies a socket's errno. An agent that closes the socket before reading everything resets the connection.
fn failure(error: impl Into<Errno>) -> Failure {
    let errno = error.into();
    match NixErrno::from_raw(errno.0) {
        NixErrno::ENOENT => Failure::NoSocket,
        NixErrno::ECONNREFUSED => Failure::Refused,
        NixErrno::EAGAIN => Failure::BacklogFull,
        NixErrno::EACCES | NixErrno::EPERM => Failure::NoPermission,
        NixErrno::EPIPE | NixErrno::ECONNRESET => Failure::ClosedEarly,
        _ => Failure::Socket(errno),
    }
}
