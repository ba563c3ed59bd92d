//! The route socket: events of addresses and links, and dumps.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
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

pub type Buffer = MutexGuard<'static, [u8; BUFFER_LEN]>;

pub fn buffer() -> Buffer {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The multicast groups for watching the VIP.
pub const WATCH: [u32; 3] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
/// Those for announcements as well: also which interfaces forward IPv6.
pub const ANNOUNCE: [u32; 4] = [WATCH[0], WATCH[1], WATCH[2], libc::RTNLGRP_IPV6_NETCONF];

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

    pub fn port(&self) -> u32 {
        self.port
    }

    /// Has the kernel drop address events of all interfaces but this one, if any, unless they are about `ip`.
    /// On an error, as of a kernel without socket filters, no events are dropped.
    pub fn set_address_filter(&self, ifindex: Option<u32>, ip: IpAddr) -> Result<(), Errno> {
        let attached = bpf::attach(&self.socket, &mut bpf::addresses_of(ifindex, ip));
        if attached.is_err() {
            bpf::detach(&self.socket);
        }
        attached
    }

    /// Requests a dump. `interface` is the watched interface.
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
            Dump::Everywhere => self.send(&rtnl::request_addresses(sequence, 0)),
        }
    }

    fn send(&self, request: &[u8]) -> Result<(), Errno> {
        self.socket.send_to(request, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// Reads one datagram into `buffer`. Returns what it says, or what the error does; `None` if there is neither.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut [u8; BUFFER_LEN],
    ) -> Option<impl Iterator<Item = Input> + use<'a>> {
        let received = self.socket.recv_from(&mut buffer.as_mut_slice(), libc::MSG_TRUNC);
        let (datagram, other) = match received {
            Ok((length, sender)) => match (sender.port_number(), buffer.get(..length)) {
                (0, Some(datagram)) => (datagram, None),
                (0, None) => (&[][..], Some(Input::MalformedMessage)),
                (port, _) => (&[][..], Some(Input::ForeignSender(port))),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // ENOBUFS. Any other error has aborted a dump, which then times out.
            Err(_) => (&[][..], Some(Input::Overrun)),
        };
        let input = |message: Result<_, _>| message.map_or(Input::MalformedMessage, Input::Netlink);
        Some(Messages::new(datagram).map(input).chain(other))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
