//! Parses and encodes: one file per format.
//!
//! Every parser is total: for any bytes it returns a value or an error. `tests/no_std` builds this module without std,
//! libc and the rest of the crate.

#![forbid(unsafe_code)]

pub mod arp;
pub mod cidr;
pub mod helper;
pub mod http;
pub mod ifname;
pub mod ndisc;
pub mod rtnl;

/// An address in a frame of a host (ARP or neighbour discovery).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host's MAC.
    pub mac: rtnl::Mac,
    /// The address.
    pub ip: core::net::IpAddr,
    /// What the frame says about it.
    pub kind: ClaimKind,
}

/// What a frame says about its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// The host has it: gratuitous ARP, or an unsolicited advertisement.
    Unsolicited,
    /// The host has it: the answer to a solicitation or an ARP request.
    Answer,
    /// The host asks who has it, and claims nothing: an ARP probe (RFC 5227 section 1.1), or a probe of keepwatch.
    Probe,
}

/// Parses the claim or the probe in an Ethernet frame, if it has one.
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    arp::parse_claim(frame).or_else(|| ndisc::parse_claim(frame))
}
