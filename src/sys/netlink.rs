//! The route socket: events of addresses and links, and dumps.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

use super::bpf;
use crate::errno::Errno;
use crate::monitor::{Dump, Input};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{self, Messages};

/// Longer than any message: a link's alternative names are one attribute of less than 64 kB, and its others
/// together are shorter still. Pages that no datagram reaches cost no memory.
const BUFFER_LEN: usize = 131_072;

/// In .bss, not on the stack, where zeroing would touch all of it.
static BUFFER: Mutex<[u8; BUFFER_LEN]> = Mutex::new([0; BUFFER_LEN]);

/// The one buffer for datagrams.
pub type Buffer = MutexGuard<'static, [u8; BUFFER_LEN]>;

/// Locks the buffer.
pub fn buffer() -> Buffer {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The multicast groups for watching the VIP.
pub const WATCH: [u32; 3] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
/// Those for announcements as well: also which interfaces forward IPv6.
pub const ANNOUNCE: [u32; 4] = [WATCH[0], WATCH[1], WATCH[2], libc::RTNLGRP_IPV6_NETCONF];

/// What one datagram, or one error, has to say.
#[derive(Debug)]
pub enum Received<'a> {
    /// Messages from the kernel.
    Messages(Messages<'a>),
    /// Anything else, until it is taken.
    Other(Option<Input>),
}

impl Iterator for Received<'_> {
    type Item = Input;

    fn next(&mut self) -> Option<Input> {
        match self {
            Self::Messages(messages) => {
                Some(messages.next()?.map_or(Input::MalformedMessage, Input::Netlink))
            }
            Self::Other(input) => input.take(),
        }
    }
}

/// A socket subscribed to changes of addresses and links.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    /// The port, which the kernel repeats in its replies.
    port: u32,
}

impl RouteSocket {
    /// Opens a socket and subscribes to `groups` ([`WATCH`] or [`ANNOUNCE`]).
    ///
    /// `receive_buffer` is in bytes, of which an event takes about 800. Without `CAP_NET_ADMIN` it is limited to
    /// `net.core.rmem_max`.
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
        Ok(Self { socket, port })
    }

    /// The socket's port.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Has the kernel drop address events of all interfaces but this one, or of all.
    ///
    /// # Errors
    /// The errno of a kernel without socket filters. Then no events are dropped.
    pub fn set_address_filter(&self, ifindex: Option<u32>) -> Result<(), Errno> {
        let attached = bpf::attach(&self.socket, &mut bpf::addresses_of(ifindex));
        if attached.is_err() {
            bpf::detach(&self.socket);
        }
        attached
    }

    /// Requests a dump. `interface` is the watched interface.
    ///
    /// # Errors
    /// The errno of sending.
    pub fn request(
        &self,
        dump: Dump,
        sequence: u32,
        interface: &InterfaceName,
    ) -> Result<(), Errno> {
        match dump {
            Dump::Links => self.send(&rtnl::request_links(sequence)),
            Dump::Interface => self.send(&rtnl::request_link(sequence, interface)),
            Dump::Addresses(ifindex) | Dump::Others(ifindex) => {
                self.send(&rtnl::request_addresses(sequence, ifindex))
            }
        }
    }

    fn send(&self, request: &[u8]) -> Result<(), Errno> {
        self.socket.send_to(request, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// Reads one datagram into `buffer`. Returns `None` if there is none.
    pub fn receive<'a>(&self, buffer: &'a mut [u8; BUFFER_LEN]) -> Option<Received<'a>> {
        let received = self.socket.recv_from(&mut buffer.as_mut_slice(), libc::MSG_TRUNC);
        Some(Received::Other(Some(match received {
            Ok((length, sender)) => match (sender.port_number(), buffer.get(..length)) {
                (0, Some(datagram)) => return Some(Received::Messages(Messages::new(datagram))),
                (0, None) => Input::MalformedMessage,
                (port, _) => Input::ForeignSender(port),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // ENOBUFS. Any other error has aborted a dump, which then times out.
            Err(_) => Input::Overrun,
        })))
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
