//! The packet socket (`packet(7)`, `net/packet/af_packet.c`): sends announcements on any interface. On the watched
//! interface it sends probes, and receives claims of the VIP.

#![expect(unsafe_code, reason = "nix builds no link-layer address")]

use core::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno as NixErrno;
use nix::libc::{self, sockaddr_ll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recvfrom, sendto,
    setsockopt, socket, sockopt,
};

use super::bpf;
use crate::errno::Errno;
use crate::monitor::{Announcement, FrameKind, Input, Probe};
use crate::wire::{arp, ndisc, parse_claim};

/// Room for some dozen claims, in bytes.
const RECEIVE_BUFFER: usize = 16_384;
/// More frames than fit into the receive buffer.
const MAX_FRAMES: usize = 64;
/// Longer than any claim.
const MAX_FRAME: usize = 128;

#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    vip: IpAddr,
    /// The interface's index.
    bound_to: Option<u32>,
}

impl PacketSocket {
    /// Opens a socket that receives no frames yet, with a locked filter for claims. `EPERM` without `CAP_NET_RAW`.
    pub fn open(vip: IpAddr) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        bpf::attach(&socket, &mut bpf::claims_of(vip))?;
        // Fails before Linux 3.9 and under qemu-user.
        let _ = setsockopt(&socket, bpf::LockFilter, &true);
        // Linux 3.14, and not qemu-user. One stuck interface's queue would fill the send buffer and delay all others.
        let _ = setsockopt(&socket, bpf::QdiscBypass, &true);
        Ok(Self { socket, vip, bound_to: None })
    }

    /// Receives claims of the VIP on this interface from now on, and discards earlier ones. `ENODEV` if it is gone.
    ///
    /// `rebind` after the interface was deleted, at which the kernel unbinds the socket. Unbinding blocks for 10 ms.
    pub fn listen(&mut self, ifindex: u32, rebind: bool) -> Result<(), Errno> {
        if rebind || self.bound_to != Some(ifindex) {
            self.bound_to = None;
            let protocol = if self.vip.is_ipv4() { libc::ETH_P_ARP } else { libc::ETH_P_IPV6 };
            bind(self.socket.as_raw_fd(), &link_address(ifindex, protocol)?)?;
            self.bound_to = Some(ifindex);
        }
        (0..MAX_FRAMES).map_while(|_| self.receive()).for_each(drop);
        Ok(())
    }

    /// Sends one frame at once. `ENOBUFS` if the driver has no room for it.
    pub fn send(&self, announcement: &Announcement) -> Result<(), Errno> {
        let Announcement { address, mac, kind } = *announcement;
        let send = |frame: &[u8]| self.send_frame(address.ifindex, frame);
        let arp = |operation, ip| send(&arp::announcement(operation, mac, ip));
        match kind {
            FrameKind::ArpRequest(ip) => arp(arp::Operation::Request, ip),
            FrameKind::ArpReply(ip) => arp(arp::Operation::Reply, ip),
            FrameKind::Advertisement { ip, router } => send(&ndisc::advertisement(mac, ip, router)),
        }
    }

    /// Sends a probe for other stations with the VIP, as [`PacketSocket::send`].
    pub fn probe(&self, probe: &Probe) -> Result<(), Errno> {
        let Probe { ifindex, mac, answer_to } = *probe;
        match self.vip {
            IpAddr::V4(ip) => self.send_frame(ifindex, &arp::probe(mac, answer_to, ip)),
            IpAddr::V6(ip) => self.send_frame(ifindex, &ndisc::probe(mac, ip)),
        }
    }

    fn send_frame(&self, ifindex: u32, frame: &[u8]) -> Result<(), Errno> {
        let address = link_address(ifindex, 0)?;
        let send = || sendto(self.socket.as_raw_fd(), frame, &address, MsgFlags::empty());
        // After the bound interface goes down, the next call fails for any interface.
        let retry = |errno| if errno == NixErrno::ENETDOWN { send() } else { Err(errno) };
        send().or_else(retry)?;
        Ok(())
    }

    /// Receives the next frame or error. Returns `None` if there is neither.
    pub fn receive(&self) -> Option<Input> {
        let mut frame = [0; MAX_FRAME];
        let (length, sender) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
            Ok((length, Some(sender))) => (length, sender),
            Err(NixErrno::EAGAIN) => return None,
            // ENETDOWN, once after the interface goes down.
            Ok(_) | Err(_) => return Some(Input::Frame(None)),
        };
        let ifindex = u32::try_from(sender.ifindex()).ok();
        Some(Input::Frame(ifindex.zip(frame.get(..length).and_then(parse_claim))))
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Returns the link-layer address for an interface. The kernel refuses -1, which stands for an index out of range.
fn link_address(ifindex: u32, protocol: libc::c_int) -> Result<LinkAddr, NixErrno> {
    let number = |_| NixErrno::EINVAL;
    let address = sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(number)?,
        sll_protocol: u16::try_from(protocol).map_err(number)?.to_be(),
        sll_ifindex: i32::try_from(ifindex).unwrap_or(-1),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of::<sockaddr_ll>()).map_err(number)?;
    // SAFETY: a complete address of its family, which nix copies.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) }.ok_or(NixErrno::EINVAL)
}
