//! The frames: what goes out where.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::rtnl::{Address, Mac};

/// Identifies an address, as the kernel does (`inet_insert_ifa`, `ipv6_add_addr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey {
    /// The index of its interface.
    pub ifindex: u32,
    /// Which of the addresses there.
    pub local: Local,
}

/// Identifies an address among those of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// IPv4 may have an address several times there, with different prefixes and peers.
    V4 {
        /// The interface's own address.
        ip: Ipv4Addr,
        /// The length of its prefix.
        prefix_len: u8,
        /// The other end's address, or the same.
        peer: Ipv4Addr,
    },
    /// IPv6 has it once, and may change its peer in place.
    V6(Ipv6Addr),
}

impl Local {
    /// The address itself.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        match *self {
            Self::V4 { ip, .. } => ip.into(),
            Self::V6(ip) => ip.into(),
        }
    }
}

impl From<&Address> for AddressKey {
    fn from(address: &Address) -> Self {
        let prefix_len = address.cidr.prefix_len();
        let local = match (address.cidr.address(), address.peer) {
            (IpAddr::V4(ip), IpAddr::V4(peer)) => Local::V4 { ip, prefix_len, peer },
            (IpAddr::V4(ip), IpAddr::V6(_)) => Local::V4 { ip, prefix_len, peer: ip },
            (IpAddr::V6(ip), _) => Local::V6(ip),
        };
        Self { ifindex: address.ifindex, local }
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
