//! The raw socket: sends announcements on any interface, hears claims of the VIP on one.

#![expect(unsafe_code, reason = "link-layer addresses are only to be had from libc")]

use core::mem::MaybeUninit;
use core::net::IpAddr;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno as NixErrno;
use nix::libc::{self, sockaddr_ll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use super::bpf;
use crate::errno::Errno;
use crate::monitor::{Announcement, FrameKind, Input, Sent};
use crate::wire::rtnl::Mac;
use crate::wire::{arp, ndisc, parse_claim};

/// Room for some dozen claims; more of them would say nothing new.
const RECEIVE_BUFFER: usize = 16_384;
/// More frames than have room in there.
const MAX_FRAMES: usize = 64;
/// Longer than any claim.
const MAX_FRAME: usize = 128;

/// A packet socket (`packet(7)`).
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    vip: IpAddr,
    /// The interface on which it hears.
    bound_to: Option<u32>,
}

impl PacketSocket {
    /// Opens a socket that hears nothing yet, and never anything but claims of the VIP: its filter is for
    /// good.
    ///
    /// # Errors
    /// The errno of the step that failed; `EPERM` without `CAP_NET_RAW`.
    pub fn open(vip: IpAddr) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        // Without a protocol nothing arrives.
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        bpf::attach(&socket, &mut bpf::claims_of(vip))?;
        // Linux 3.9, and not under qemu-user. Seccomp does not let it be exchanged either.
        let _ = bpf::lock(&socket);
        Ok(Self { socket, vip, bound_to: None })
    }

    /// Hears claims of the VIP on this interface, and forgets those that have come already.
    ///
    /// The kernel unbinds the socket when the interface goes, but nothing tells whether it has: hence
    /// `rebind`. Where the socket is still bound, it notices that there is nothing to be done.
    ///
    /// Nothing makes it deaf again. Unbinding would, but waits until no packet is on its way through the
    /// socket, some 10 ms. Claims are rare enough to be read and not heeded.
    ///
    /// # Errors
    /// The errno of the step that failed; `ENODEV` if the interface has gone.
    pub fn listen(&mut self, ifindex: u32, rebind: bool) -> Result<(), Errno> {
        if rebind || self.bound_to != Some(ifindex) {
            self.bound_to = None;
            self.bind(ifindex)?;
            self.bound_to = Some(ifindex);
        }
        for _ in 0..MAX_FRAMES {
            if self.receive().is_none() {
                break;
            }
        }
        Ok(())
    }

    fn bind(&self, ifindex: u32) -> Result<(), Errno> {
        let protocol = if self.vip.is_ipv4() { libc::ETH_P_ARP } else { libc::ETH_P_IPV6 };
        let protocol = u16::try_from(protocol).map_err(|_| NixErrno::EINVAL)?;
        let address = link_address(ifindex, protocol);
        // SAFETY: the kernel reads `LINK_ADDRESS_LEN` bytes of `address`.
        let result = unsafe {
            libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), LINK_ADDRESS_LEN)
        };
        NixErrno::result(result)?;
        Ok(())
    }

    /// Sends one frame, unless the send buffer holds more than the frame's limit.
    pub fn send(&self, announcement: &Announcement) -> Sent {
        let Announcement { address, mac, kind, limit } = *announcement;
        let queued = self.queued();
        if limit.is_some_and(|limit| queued > limit) {
            return Sent::HeldBack { queued };
        }
        match self.send_kind(address.ifindex, mac, kind) {
            Ok(()) => Sent::Yes { queued },
            Err(NixErrno::EAGAIN) => Sent::Blocked,
            Err(NixErrno::ENOBUFS) => Sent::QueueFull,
            Err(errno) => Sent::Failed(errno.into()),
        }
    }

    /// What frames take in the send buffer that are still in some interface's queue, in bytes.
    fn queued(&self) -> u32 {
        let mut queued: libc::c_int = 0;
        // SAFETY: the kernel writes an int (`SIOCOUTQ`, `include/uapi/linux/sockios.h`). Were it to fail,
        // there would be nothing.
        unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        queued.try_into().unwrap_or(0)
    }

    fn send_kind(&self, ifindex: u32, mac: Mac, kind: FrameKind) -> Result<(), NixErrno> {
        match kind {
            FrameKind::ArpRequest(ip) => {
                self.send_frame(ifindex, &arp::announcement(arp::Operation::Request, mac, ip))
            }
            FrameKind::ArpReply(ip) => {
                self.send_frame(ifindex, &arp::announcement(arp::Operation::Reply, mac, ip))
            }
            FrameKind::Advertisement { ip, router } => {
                self.send_frame(ifindex, &ndisc::advertisement(mac, ip, router))
            }
        }
    }

    fn send_frame(&self, ifindex: u32, frame: &[u8]) -> Result<(), NixErrno> {
        let address = link_address(ifindex, 0);
        let try_once = || {
            // SAFETY: the kernel reads the frame's bytes and `LINK_ADDRESS_LEN` of `address`.
            let result = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                    (&raw const address).cast(),
                    LINK_ADDRESS_LEN,
                )
            };
            NixErrno::result(result)
        };
        // The interface that is listened on going down leaves an error for the next call, whatever
        // interface that is about.
        let retry = |errno| if errno == NixErrno::ENETDOWN { try_once() } else { Err(errno) };
        try_once().or_else(retry).map(|_| ())
    }

    /// The next frame that was heard, or error; none if there is none.
    pub fn receive(&self) -> Option<Input> {
        let mut frame = [0; MAX_FRAME];
        let mut address = MaybeUninit::<sockaddr_ll>::zeroed();
        let mut address_len = LINK_ADDRESS_LEN;
        // SAFETY: the kernel writes at most `MAX_FRAME` bytes to `frame` and `LINK_ADDRESS_LEN` to
        // `address`.
        let received = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                MAX_FRAME,
                0,
                address.as_mut_ptr().cast(),
                &raw mut address_len,
            )
        };
        // SAFETY: all zeroes are a valid value, and so is whatever the kernel wrote.
        let address = unsafe { address.assume_init() };
        let length = match NixErrno::result(received) {
            Ok(length) => usize::try_from(length).unwrap_or_default(),
            Err(NixErrno::EAGAIN) => return None,
            // ENETDOWN: said once, when the interface goes down.
            Err(_) => return Some(Input::NoClaim),
        };
        let frame = frame.get(..length).filter(|_| bpf::is_for_us(address.sll_pkttype));
        let ifindex = u32::try_from(address.sll_ifindex).ok();
        let heard = ifindex.zip(frame.and_then(parse_claim));
        Some(heard.map_or(Input::NoClaim, |(ifindex, claim)| Input::Claimed(ifindex, claim)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "20 bytes")]
const LINK_ADDRESS_LEN: libc::socklen_t = size_of::<sockaddr_ll>() as libc::socklen_t;

fn link_address(ifindex: u32, protocol: u16) -> sockaddr_ll {
    sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: protocol.to_be(),
        // An index that is too large is none, as the kernel will say.
        sll_ifindex: i32::try_from(ifindex).unwrap_or(-1),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
