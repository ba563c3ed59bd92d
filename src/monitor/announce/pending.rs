//! The pending announcements, and their frames.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU8;

use heapless::Vec;

use super::links::{AnnounceLink, Links};
use crate::monitor::{Duration, Instant};
use crate::wire::cidr::Cidr;
use crate::wire::rtnl::{Address, Mac};

/// The timing of announcements. The names in brackets are keepalived's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceTiming {
    /// Rounds for each address (`garp_master_repeat`).
    pub repeat: NonZeroU8,
    /// The time between two rounds of an address (`garp_master_delay`).
    pub delay: Duration,
    /// The mean time between two addresses (`garp_interval`), for switches that throttle them.
    pub interval: Duration,
}

impl Default for AnnounceTiming {
    /// Returns 3 rounds (`MAX_NEIGHBOR_ADVERTISEMENT` in RFC 4861 section 10), 2 s apart, of all addresses at once.
    fn default() -> Self {
        let repeat = NonZeroU8::MIN.saturating_add(2);
        Self { repeat, delay: Duration::from_secs(2), interval: Duration::ZERO }
    }
}

/// Identifies an address, as the kernel does (`inet_insert_ifa`, `ipv6_add_addr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey {
    /// The index of its interface.
    pub ifindex: u32,
    /// The address itself.
    pub ip: IpAddr,
    /// For IPv4 the prefix length and the peer, because an interface may have an address several times. In IPv6 it has
    /// each address once.
    pub ipv4: Option<(u8, IpAddr)>,
}

impl AddressKey {
    pub(in crate::monitor) fn new(ifindex: u32, cidr: Cidr, peer: IpAddr) -> Self {
        let ip = cidr.address();
        Self { ifindex, ip, ipv4: ip.is_ipv4().then_some((cidr.prefix_len(), peer)) }
    }
}

impl From<&Address> for AddressKey {
    fn from(address: &Address) -> Self {
        Self::new(address.ifindex, address.cidr, address.peer)
    }
}

/// A frame that announces an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The address, and the interface that sends the frame.
    pub address: AddressKey,
    /// The interface's current MAC.
    pub mac: Mac,
    /// The kind of the frame.
    pub kind: FrameKind,
}

/// The kind of a frame that announces an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An ARP request with this address as sender and target.
    ArpRequest(Ipv4Addr),
    /// An unsolicited ARP reply.
    ArpReply(Ipv4Addr),
    /// An unsolicited neighbour advertisement.
    Advertisement {
        /// The address.
        ip: Ipv6Addr,
        /// The interface forwards IPv6.
        router: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnnouncement {
    pub(super) address: AddressKey,
    pub(super) progress: Progress,
    /// The rounds that are left.
    pub(super) rounds: u8,
    /// A round has been sent.
    pub(super) is_later: bool,
    /// The ARP request of the current round has been sent, its reply is next.
    pub(super) replying: bool,
    /// When the next frame is due, while announcing.
    pub(super) due: Instant,
}

/// The order of frames that are due: the first rounds come first, and of these link-local addresses last, as the node's own
/// may be hundreds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    #[default]
    First,
    FirstLinkLocal,
    Later,
}

impl Rank {
    pub(super) const ALL: [Self; 3] = [Self::First, Self::FirstLinkLocal, Self::Later];
}

impl PendingAnnouncement {
    pub(super) fn new(address: AddressKey, progress: Progress, rounds: u8, due: Instant) -> Self {
        Self { address, progress, rounds, is_later: false, replying: false, due }
    }

    pub(super) fn frame(&self, link: &AnnounceLink) -> Announcement {
        let kind = match self.address.ip {
            IpAddr::V4(ip) if self.replying => FrameKind::ArpReply(ip),
            IpAddr::V4(ip) => FrameKind::ArpRequest(ip),
            IpAddr::V6(ip) => FrameKind::Advertisement { ip, router: link.router },
        };
        Announcement { address: self.address, mac: link.mac, kind }
    }

    /// Returns whether no round is left, and none has been sent for a while.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.progress == Progress::Done && now >= self.due
    }

    pub(super) fn rank(&self) -> Rank {
        match self.address.ip {
            _ if self.is_later => Rank::Later,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Rank::FirstLinkLocal,
            _ => Rank::First,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Duplicate address detection runs (RFC 4862 section 5.4).
    Tentative,
    /// The queue may hold the event of its deletion, the link is unknown, or it has another VRRP instance's virtual MAC.
    Waiting,
    Announcing,
    /// No round is left. Another event of the same change, or an answer, may still show it.
    Done,
}

const MAX_ADDRESSES: usize = 4096;

/// The memory of the announcer: large, and mostly untouched.
#[derive(Debug)]
pub struct Tables {
    pub(super) links: Links,
    pub(super) entries: Vec<PendingAnnouncement, MAX_ADDRESSES>,
}

impl Tables {
    /// Returns empty tables.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: Links::new(), entries: Vec::new() }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}
