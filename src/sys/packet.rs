//! The packet socket (`packet(7)`, `net/packet/af_packet.c`): sends announcements on any interface. On the watched
//! interface it sends probes, and receives claims of the VIP.

#![expect(unsafe_code, reason = "nix builds no link-layer address")]

use core::net::IpAddr;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno as NixErrno;
use nix::libc::{self, sockaddr_ll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind,
    cmsg_space, recvmsg, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeValLike};

use super::{bpf, clock};
use crate::errno::Errno;
use crate::monitor::{Announcement, FrameKind, Input, Instant, Probe};
use crate::wire::{arp, ndisc, parse_claim};

/// Room for some dozen claims, in bytes.
const RECEIVE_BUFFER: usize = 16_384;
/// Room for some 1,300 frames, in bytes. They occupy it while they are in the rings of network cards, and a card that does
/// not send must not keep the others waiting. The default holds 277.
const SEND_BUFFER: usize = 1 << 20;
/// More frames than fit into the receive buffer.
const MAX_FRAMES: usize = 64;
/// The longest Ethernet frame, as an advertisement may have many options, such as a signature (RFC 3971).
const MAX_FRAME: usize = 1514;

/// Room for the control message with the kernel's time, aligned like its header.
#[repr(align(8))]
struct Control([u8; cmsg_space::<TimeSpec>()]);

#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    vip: IpAddr,
    /// The index of the interface that it is bound to, 0 for all. None: not known to be bound.
    bound_to: Option<u32>,
    /// When no frame was left to receive: a later frame is younger, however the wall clock is set.
    emptied: Instant,
}

impl PacketSocket {
    /// Opens a socket that receives no frames yet, with a locked filter for claims. `EPERM` without `CAP_NET_RAW`.
    pub fn open(vip: IpAddr) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        // Needs CAP_NET_ADMIN; the default is enough for one card.
        let _ = setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER);
        bpf::attach(&socket, &mut bpf::claims_of(vip))?;
        // Fails under qemu-user, where a frame's time is that at which it is read.
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        // Fails before Linux 3.9 and under qemu-user.
        let _ = setsockopt(&socket, bpf::LockFilter, &true);
        // Linux 3.14, and not qemu-user. One stuck interface's queue would fill the send buffer and delay all others.
        let _ = setsockopt(&socket, bpf::QdiscBypass, &true);
        Ok(Self { socket, vip, bound_to: None, emptied: clock::now() })
    }

    /// Receives claims of the VIP on one interface from now on, or on all, and discards earlier ones. `ENODEV` if it is
    /// gone.
    ///
    /// `rebind` after the interface was deleted, at which the kernel unbinds a socket of this interface alone. Unbinding
    /// blocks for 10 ms.
    pub fn listen(&mut self, only: Option<u32>, rebind: bool) -> Result<(), Errno> {
        let ifindex = only.unwrap_or(0);
        if rebind && only.is_some() || self.bound_to != Some(ifindex) {
            self.bound_to = None;
            let protocol = if self.vip.is_ipv4() { libc::ETH_P_ARP } else { libc::ETH_P_IPV6 };
            if rebind && only.is_none() {
                // The kernel takes a socket whose interface was deleted for one that is bound to all interfaces, so only
                // another protocol has it bound again (`packet_do_bind`).
                self.bind(ifindex, libc::ETH_P_LOOP)?;
            }
            self.bind(ifindex, protocol)?;
            self.bound_to = Some(ifindex);
        }
        (0..MAX_FRAMES).map_while(|_| self.receive()).for_each(drop);
        Ok(())
    }

    fn bind(&self, ifindex: u32, protocol: libc::c_int) -> Result<(), Errno> {
        Ok(bind(self.socket.as_raw_fd(), &link_address(ifindex, protocol)?)?)
    }

    /// Sends one frame at once. `EAGAIN` if the network card's ring or the socket's buffer has no room for it.
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
        let Probe { ifindex, mac, from, answer_to } = *probe;
        match (self.vip, from) {
            (IpAddr::V4(ip), IpAddr::V4(from)) => {
                self.send_frame(ifindex, &arp::probe_from(mac, (answer_to, from), ip))
            }
            (IpAddr::V6(ip), IpAddr::V6(from)) if !from.is_unspecified() => {
                self.send_frame(ifindex, &ndisc::probe_from(mac, from, ip))
            }
            (IpAddr::V6(ip), IpAddr::V6(_)) => self.send_frame(ifindex, &ndisc::probe(mac, ip)),
            _ => Err(NixErrno::EAFNOSUPPORT.into()),
        }
    }

    fn send_frame(&self, ifindex: u32, frame: &[u8]) -> Result<(), Errno> {
        let address = link_address(ifindex, 0)?;
        let send = || sendto(self.socket.as_raw_fd(), frame, &address, MsgFlags::empty());
        // After the bound interface goes down, the next call fails for any interface.
        let retry = |errno| if errno == NixErrno::ENETDOWN { send() } else { Err(errno) };
        match send().or_else(retry) {
            // A full ring, as no queue is before it.
            Err(NixErrno::ENOBUFS) => Err(NixErrno::EAGAIN.into()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Receives the next frame or error. Returns `None` if there is neither.
    pub fn receive(&mut self) -> Option<Input> {
        let mut frame = [0; MAX_FRAME];
        let mut control = Control([0; _]);
        let mut slices = [IoSliceMut::new(&mut frame)];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        let received = recvmsg::<LinkAddr>(fd, &mut slices, Some(&mut control.0), flags);
        let now = clock::now();
        let (length, sender, stamp) = match &received {
            Ok(received) => (received.bytes, received.address, kernel_time(received.cmsgs())),
            Err(NixErrno::EAGAIN) => {
                self.emptied = now;
                return None;
            }
            // ENETDOWN, once after the interface goes down.
            Err(_) => return Some(Input::Frame(None)),
        };
        let ifindex = sender.and_then(|sender| u32::try_from(sender.ifindex()).ok());
        let claim = frame.get(..length).and_then(parse_claim);
        let at = stamp.map_or(now, |stamp| {
            clock::moment_of(stamp.num_microseconds(), now).clamp(self.emptied, now)
        });
        Some(Input::Frame(ifindex.zip(claim).map(|(ifindex, claim)| (ifindex, claim, at))))
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Returns the wall-clock time at which the kernel received a frame.
fn kernel_time<E>(
    messages: Result<impl Iterator<Item = ControlMessageOwned>, E>,
) -> Option<TimeSpec> {
    messages.ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(time),
        _ => None,
    })
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
