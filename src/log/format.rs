//! How values from outside go into frames.

use core::fmt;
use core::net::IpAddr;

use defmt::{Format, Formatter, write};

use super::DisplayArg;
use crate::monitor::Local;
use crate::wire::Claim;
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Link};

/// A router of Neutron is called by a UUID, which as a number has less than half the size.
impl Format for RouterId {
    fn format(&self, f: Formatter<'_>) {
        let Some(uuid) = uuid(self.as_str()) else {
            return write!(f, "{=str}", self.as_str());
        };
        write!(
            f,
            "{0=96..128:08x}-{0=80..96:04x}-{0=64..80:04x}-{0=48..64:04x}-{0=0..48:012x}",
            uuid
        );
    }
}

impl Format for InterfaceName {
    fn format(&self, f: Formatter<'_>) {
        DisplayArg(self).format(f);
    }
}

/// An IP address, of which IPv6's own way to shorten zeros is the shortest.
struct Ip(IpAddr);

impl Format for Ip {
    fn format(&self, f: Formatter<'_>) {
        match self.0 {
            IpAddr::V4(ip) => {
                write!(f, "{0=24..32}.{0=16..24}.{0=8..16}.{0=0..8}", ip.to_bits());
            }
            IpAddr::V6(ip) => DisplayArg(ip).format(f),
        }
    }
}

// What follows reads as `Debug` does.

impl Format for Cidr {
    fn format(&self, f: Formatter<'_>) {
        let (address, prefix_len) = (Ip(self.address()), self.prefix_len());
        write!(f, "Cidr {{ address: {}, prefix_len: {=u8} }}", address, prefix_len);
    }
}

impl Format for Address {
    fn format(&self, f: Formatter<'_>) {
        let Self { ifindex, cidr, peer, flags, refreshed } = self;
        write!(
            f,
            "Address {{ ifindex: {=u32}, cidr: {}, peer: {}, flags: {}, refreshed: {=bool} }}",
            ifindex,
            cidr,
            Ip(*peer),
            debug(flags),
            refreshed
        );
    }
}

impl Format for Link {
    fn format(&self, f: Formatter<'_>) {
        let Self { ifindex, name, flags, ethernet, mac, carrier_changes, ipv6_forwarding } = self;
        write!(
            f,
            "Link {{ ifindex: {=u32}, name: {}, flags: {}, ethernet: {=bool}, mac: {}, \
             carrier_changes: {}, ipv6_forwarding: {} }}",
            ifindex,
            name,
            debug(flags),
            ethernet,
            mac,
            carrier_changes,
            ipv6_forwarding
        );
    }
}

impl Format for Local {
    fn format(&self, f: Formatter<'_>) {
        match *self {
            Self::V4 { ip, prefix_len, peer } => write!(
                f,
                "V4 {{ ip: {}, prefix_len: {=u8}, peer: {} }}",
                Ip(ip.into()),
                prefix_len,
                Ip(peer.into())
            ),
            Self::V6(ip) => write!(f, "V6({})", Ip(ip.into())),
        }
    }
}

impl Format for Claim {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "Claim {{ mac: {}, ip: {} }}", self.mac, Ip(self.ip));
    }
}

/// Flags, whose names are on this side only.
fn debug<T: fmt::Debug>(flags: &T) -> DisplayArg<Flags<'_, T>> {
    DisplayArg(Flags(flags))
}

struct Flags<'a, T>(&'a T);

impl<T: fmt::Debug> fmt::Display for Flags<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number in a UUID as Neutron writes it (RFC 9562 section 4, lower case).
fn uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    text.bytes().enumerate().try_fold(0, |uuid, (place, byte)| {
        let digit = match (place, byte) {
            (8 | 13 | 18 | 23, b'-') => return Some(uuid),
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        Some(uuid << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prints_the_same_is_a_number() {
        let number = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(uuid("01234567-89ab-cdef-0123-456789abcdef"), Some(number));
        for text in [
            "01234567-89AB-cdef-0123-456789abcdef",
            "0123456789-ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "01234567-89ab-cdef-0123-456789abcde",
            "r1",
        ] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
