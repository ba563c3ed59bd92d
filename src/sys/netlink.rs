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
use crate::wire::rtnl::{self, Malformed, Messages};

/// Longer than any message, in bytes: a link's longest attribute, its alternative names, has less than 64 kB.
const BUFFER_LEN: usize = 131_072;

/// In .bss, not on the stack, where zeroing would touch all of it.
static BUFFER: Mutex<[u8; BUFFER_LEN]> = Mutex::new([0; BUFFER_LEN]);

/// Returns the buffer for [`RouteSocket::receive`].
pub fn buffer() -> MutexGuard<'static, [u8; BUFFER_LEN]> {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The multicast groups for watching the VIP.
const WATCH: [u32; 3] = [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];

#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    /// The kernel repeats it in its replies.
    pub port: u32,
}

impl RouteSocket {
    /// Opens a socket and subscribes to events. An event takes about 800 bytes of the `receive_buffer`, which
    /// `net.core.rmem_max` limits without `CAP_NET_ADMIN`. To `announce`, IPv6 forwarding has to be known.
    pub fn open(receive_buffer: usize, announce: bool) -> Result<Self, Errno> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &receive_buffer))?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        for group in WATCH.into_iter().chain(announce.then_some(libc::RTNLGRP_IPV6_NETCONF)) {
            socket.add_membership(group)?;
        }
        // Linux 4.20. Without it a dump lists the addresses of all interfaces, which is only slower.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, port })
    }

    /// Makes the kernel drop address events of interfaces other than `ifindex`, unless they are about `ip`. On an error,
    /// for instance of a kernel without socket filters, no events are dropped.
    pub fn set_address_filter(&self, ifindex: Option<u32>, ip: IpAddr) -> Result<(), Errno> {
        let attached = bpf::attach(&self.socket, &mut bpf::addresses_of(ifindex, ip));
        if attached.is_err() {
            // The previous filter would stay.
            let _ = setsockopt(&self.socket, bpf::DetachFilter, &true);
        }
        attached
    }

    /// Requests a dump: see [`crate::monitor::Action::RequestDump`]. `interface` is the watched interface.
    pub fn request(
        &self,
        dump: Dump,
        only: Option<u32>,
        sequence: u32,
        interface: &InterfaceName,
    ) -> Result<(), Errno> {
        let send = |request: &[u8]| self.socket.send_to(request, &SocketAddr::new(0, 0), 0);
        match dump {
            Dump::Interface => send(&rtnl::request_link(sequence, interface)),
            Dump::Addresses => send(&rtnl::request_addresses(sequence, only.unwrap_or(0))),
            Dump::Links => send(&rtnl::request_links(sequence)),
        }?;
        Ok(())
    }

    /// Reads one datagram into `buffer`. Returns the inputs in it, or one for an error; `None` if there is neither.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> Option<impl Iterator<Item = Input> + use<'a>> {
        let (datagram, other) = match self.socket.recv_from(&mut &mut *buffer, libc::MSG_TRUNC) {
            Ok((length, sender)) => match (sender.port_number(), buffer.get(..length)) {
                (0, Some(datagram)) => (datagram, None),
                (0, None) => (&[][..], Some(Input::MalformedMessage(None))),
                (port, _) => (&[][..], Some(Input::ForeignSender(port))),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // ENOBUFS. After any other error, the dump under way times out.
            Err(_) => (&[][..], Some(Input::Overrun)),
        };
        let input = |message| match message {
            Ok(message) => Input::Netlink(message),
            Err(Malformed(ifindex)) => Input::MalformedMessage(ifindex),
        };
        Some(Messages::new(datagram).map(input).chain(other))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
