//! The addresses that are to be announced, and the frames that do.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU8;

use heapless::Vec;

use super::links::{Link, Links};
use crate::monitor::{Duration, Instant};
use crate::wire::rtnl::{Address, Mac};

/// What is usual (`MAX_NEIGHBOR_ADVERTISEMENT` in RFC 4861 section 10).
const ROUNDS: NonZeroU8 = NonZeroU8::MIN.saturating_add(2);

/// How announcements are made. The names are keepalived's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceTiming {
    /// Rounds for each address (`garp_master_repeat`).
    pub repeat: NonZeroU8,
    /// From one round of an address to the next (`garp_master_delay`).
    pub delay: Duration,
    /// From one address to the next (`garp_interval`), so that switches do not throttle them.
    pub interval: Duration,
}

impl Default for AnnounceTiming {
    /// 3 rounds, 2 s apart; 1,000 addresses a second.
    fn default() -> Self {
        Self { repeat: ROUNDS, delay: Duration::from_secs(2), interval: Duration::from_millis(1) }
    }
}

/// Identifies an address, as the kernel does (`inet_insert_ifa`, `ipv6_add_addr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey {
    /// The index of its interface.
    pub ifindex: u32,
    /// The address itself.
    pub ip: IpAddr,
    /// For IPv4, which may have it several times there, the length of its prefix and its peer. IPv6 has it once, and may
    /// change its peer in place.
    pub ipv4: Option<(u8, IpAddr)>,
}

impl From<&Address> for AddressKey {
    fn from(Address { ifindex, cidr, peer, .. }: &Address) -> Self {
        let ip = cidr.address();
        let ipv4 = ip.is_ipv4().then_some((cidr.prefix_len(), *peer));
        Self { ifindex: *ifindex, ip, ipv4 }
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What is announced, and where it goes out.
    pub address: AddressKey,
    /// The interface's present MAC.
    pub mac: Mac,
    /// What is said.
    pub kind: FrameKind,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An ARP request in which sender and target are this address.
    ArpRequest(Ipv4Addr),
    /// An ARP reply to nobody.
    ArpReply(Ipv4Addr),
    /// An unsolicited neighbour advertisement.
    Advertisement {
        /// The address.
        ip: Ipv6Addr,
        /// The interface forwards.
        router: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnnouncement {
    pub(super) address: AddressKey,
    pub(super) progress: Progress,
    /// The next frame goes out then, if any does.
    pub(super) due: Instant,
    /// The dump under way, or an event since it began, has shown this address.
    pub(super) seen: bool,
}

impl PendingAnnouncement {
    pub(super) fn frame(&self, link: &Link) -> Option<Announcement> {
        let Progress::Announcing { replying, .. } = self.progress else { return None };
        let kind = match self.address.ip {
            IpAddr::V4(ip) if replying => FrameKind::ArpReply(ip),
            IpAddr::V4(ip) => FrameKind::ArpRequest(ip),
            IpAddr::V6(ip) => FrameKind::Advertisement { ip, router: link.router },
        };
        Some(Announcement { address: self.address, mac: link.mac, kind })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Duplicate address detection has yet to end (RFC 4862 section 5.4).
    Tentative,
    /// It has yet to begin: this router is backup, or the link has another VRRP instance's virtual MAC.
    Waiting,
    /// So many rounds are to come. `replying`: the ARP request of the first of them is out, its reply is next.
    Announcing { rounds: NonZeroU8, replying: bool },
}

impl Progress {
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Self::Announcing { .. })
    }
}

const MAX_ADDRESSES: usize = 4096;

/// The memory of the announcer. It is large, and most of it is never touched.
#[derive(Debug)]
pub struct Tables {
    pub(super) links: Links,
    pub(super) entries: Vec<PendingAnnouncement, MAX_ADDRESSES>,
}

impl Tables {
    /// Empty ones.
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
