//! An address with a prefix length, as an operator writes it: `169.254.0.5/24`.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use smoltcp::wire::IpCidr;

/// An address on an interface with its prefix length: host bits are kept, and to the kernel `10.0.0.1/24` and
/// `10.0.0.1/32` are two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

impl Cidr {
    /// Returns an address with a prefix length in bits. `None`: this exceeds the width of the address.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        (prefix_len <= bits(address)).then_some(Self { address, prefix_len })
    }

    /// Returns the address, host bits included.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns whether another address is in this one's subnet.
    pub fn contains(&self, other: IpAddr) -> bool {
        // Does not panic, as `new` has checked the length.
        IpCidr::new(self.address.into(), self.prefix_len).contains_addr(&other.into())
    }

    /// Returns the prefix length in bits.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }
}

/// Returns the width of an address in bits.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Cidr {
    type Err = ();

    /// Parses `ADDRESS/PREFIX`, or a bare address, which has its full length.
    ///
    /// The address is what [`IpAddr`] accepts (RFC 4291 section 2.2, no zone). The prefix length is decimal
    /// without sign or leading zero.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, digits) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(drop)?;
        let prefix_len = match digits.as_bytes() {
            [] if !text.ends_with('/') => bits(address),
            // `u8::from_str` alone would accept "+8" and "08".
            [b'+', ..] | [b'0', _, ..] => return Err(()),
            _ => digits.parse().map_err(drop)?,
        };
        Self::new(address, prefix_len).ok_or(())
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}
