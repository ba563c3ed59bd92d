//! The route socket: events of addresses and links, and dumps.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

use super::bpf;
use crate::errno::Errno;
use crate::monitor::{DumpResult, Input};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{self, Body, Message, Messages};

/// More than the longest message: one about a link has all its alternative names in one attribute, which
/// is shorter than 64 kB, and so is what else it has. Of this only as much memory is used as the longest
/// datagram takes.
const BUFFER_LEN: usize = 131_072;

/// Not on the stack, where all of it would be touched to make it zero.
static BUFFER: Mutex<[u8; BUFFER_LEN]> = Mutex::new([0; BUFFER_LEN]);

/// The one buffer for datagrams.
pub type Buffer = MutexGuard<'static, [u8; BUFFER_LEN]>;

/// Takes the buffer, for as long as the caller has it.
pub fn buffer() -> Buffer {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the watch itself needs to hear of.
pub const WATCH: [u32; 3] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
/// What announcements need beside that: which interfaces forward IPv6.
pub const ANNOUNCE: [u32; 4] = [WATCH[0], WATCH[1], WATCH[2], libc::RTNLGRP_IPV6_NETCONF];

/// What one read from the socket gave.
#[derive(Debug)]
pub enum Received<'a> {
    /// Messages from the kernel.
    Messages(Messages<'a>),
    /// A datagram from another process, by its port. It is not to be believed.
    Foreign(u32),
    /// The kernel had to drop events.
    Overrun,
    /// The datagram is longer than the buffer.
    TooLong,
    /// There is nothing more to read.
    Empty,
}

/// A socket subscribed to what changes in addresses and links.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    /// Our own port, which the kernel repeats in its replies.
    port: u32,
    /// Of the last request.
    sequence: u32,
    interrupted: bool,
}

impl RouteSocket {
    /// Subscribes to groups ([`WATCH`] or [`ANNOUNCE`]). What happens from now on can be read, and what is there can be dumped.
    ///
    /// `receive_buffer` is in bytes, of which each event takes about 800. Without `CAP_NET_ADMIN`
    /// there are no more than `net.core.rmem_max` to be had.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn open(receive_buffer: usize, groups: &[u32]) -> Result<Self, Errno> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &receive_buffer))?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        // Linux 4.20. Without it a dump has the addresses of all interfaces, which is only slower.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, port, sequence: 0, interrupted: false })
    }

    /// Has the kernel keep back events of addresses on other interfaces than the one with this index; with
    /// none, on all of them.
    ///
    /// # Errors
    /// The errno of a kernel that takes no filter. Then nothing is kept back.
    pub fn heed(&self, ifindex: Option<u32>) -> Result<(), Errno> {
        let attached = bpf::attach(&self.socket, &mut bpf::addresses_of(ifindex));
        if attached.is_err() {
            bpf::detach(&self.socket);
        }
        attached
    }

    /// Asks for a dump of all links.
    ///
    /// # Errors
    /// The errno of sending, `EBUSY` among them while another dump is under way.
    pub fn request_links(&mut self) -> Result<(), Errno> {
        let sequence = self.next_sequence();
        self.send(&rtnl::request_links(sequence))
    }

    /// Asks for the link that has this name, be it but an alternative one.
    ///
    /// # Errors
    /// As [`RouteSocket::request_links`].
    pub fn request_link(&mut self, name: &InterfaceName) -> Result<(), Errno> {
        let sequence = self.next_sequence();
        self.send(&rtnl::request_link(sequence, name))
    }

    /// Asks for a dump of the addresses of one interface.
    ///
    /// # Errors
    /// As [`RouteSocket::request_links`].
    pub fn request_addresses(&mut self, ifindex: u32) -> Result<(), Errno> {
        let sequence = self.next_sequence();
        self.send(&rtnl::request_addresses(sequence, ifindex))
    }

    fn next_sequence(&mut self) -> u32 {
        self.interrupted = false;
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&self, request: &[u8]) -> Result<(), Errno> {
        self.socket.send_to(request, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// Reads one datagram into `buffer`.
    pub fn receive<'a>(&self, buffer: &'a mut [u8; BUFFER_LEN]) -> Received<'a> {
        let received = self.socket.recv_from(&mut buffer.as_mut_slice(), libc::MSG_TRUNC);
        match received {
            Ok((length, sender)) => match (sender.port_number(), buffer.get(..length)) {
                (0, Some(datagram)) => Received::Messages(Messages::new(datagram)),
                (0, None) => Received::TooLong,
                (port, _) => Received::Foreign(port),
            },
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Received::Empty,
            // ENOBUFS. Any other error is what a dump died of; its end is then waited for in vain.
            Err(_) => Received::Overrun,
        }
    }

    /// What a message means to the core, if anything.
    pub fn input(&mut self, message: Message) -> Option<Input> {
        // Events repeat the port and sequence of the request that caused them, so both must match.
        let is_reply = message.port == self.port && message.sequence == self.sequence;
        if is_reply {
            self.interrupted |= message.interrupted;
        }
        match message.body {
            Body::Done(_) | Body::Error(_) if !is_reply => None,
            Body::Done(Some(errno)) | Body::Error(errno) => Some(Input::DumpEnded(dump_end(errno))),
            Body::Done(None) if self.interrupted => Some(Input::DumpEnded(DumpResult::Interrupted)),
            Body::Done(None) => Some(Input::DumpEnded(DumpResult::Complete)),
            Body::Other => None,
            body if is_reply => Some(Input::Listed(body)),
            body => Some(Input::Event(body)),
        }
    }
}

/// How a dump ended that the kernel ended with this errno.
fn dump_end(errno: i32) -> DumpResult {
    // The interface whose addresses were asked for is gone, and they with it; or there is none of the
    // name that was asked for.
    if errno == NixErrno::ENODEV as i32 {
        DumpResult::Complete
    } else {
        DumpResult::Failed(Errno(errno))
    }
}

impl AsFd for RouteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for RouteSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
