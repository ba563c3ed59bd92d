//! Bytes in, values out, and back: one file per format.
//!
//! Nothing here touches a file descriptor. Every parser is total: whatever the bytes, it answers
//! with a value or an error, and it never reads outside them.

pub mod arp;
pub mod cidr;
pub mod helper;
pub mod http;
pub mod ifname;
pub mod ndisc;
pub mod rtnl;

/// What a station says to everybody on a link: this address is mine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The station.
    pub mac: rtnl::Mac,
    /// The address.
    pub ip: core::net::IpAddr,
}

/// The claim in an Ethernet frame, be it for IPv4 or IPv6.
pub fn claim(frame: &[u8]) -> Option<Claim> {
    arp::claim(frame).or_else(|| ndisc::claim(frame))
}
