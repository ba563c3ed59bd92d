//! An address with a prefix length, as an operator writes it: `169.254.0.5/24`.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An IPv4 or IPv6 address and the prefix length it is configured with.
///
/// Host bits are kept: this is an address on an interface, not a network. Two values are equal
/// only if both parts are, because the kernel holds `10.0.0.1/24` and `10.0.0.1/32` as two
/// different addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

/// The text or the numbers are no [`Cidr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseCidrError;

impl Cidr {
    /// Joins an address and a prefix length in bits.
    ///
    /// # Errors
    /// [`ParseCidrError`] if the prefix is longer than the address (32 or 128 bits).
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<Self, ParseCidrError> {
        if prefix_len > bits(address) {
            return Err(ParseCidrError);
        }
        Ok(Self { address, prefix_len })
    }

    /// The address, host bits included.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }
}

/// The width of an address in bits.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    /// Parses `ADDRESS/PREFIX`, or a bare address, which has its full length.
    ///
    /// The address is what [`IpAddr`] accepts (RFC 4291 section 2.2, no zone). The prefix length is decimal
    /// without sign or leading zero.
    fn from_str(text: &str) -> Result<Self, ParseCidrError> {
        let Some((address, digits)) = text.split_once('/') else {
            let address = text.parse().map_err(|_| ParseCidrError)?;
            return Self::new(address, bits(address));
        };
        let address = address.parse().map_err(|_| ParseCidrError)?;
        // `u8::from_str` alone would accept "+8" and "08".
        if digits.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(ParseCidrError);
        }
        Self::new(address, digits.parse().map_err(|_| ParseCidrError)?)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}
