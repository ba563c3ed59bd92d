//! An address with its prefix length: it survives printing and parsing, and only std's addresses with a plain number
//! are accepted.

use std::net::IpAddr;

use keepwatch::wire::cidr::Cidr;

/// Checks any text.
pub fn check(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let ours = text.parse::<Cidr>();
    let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let theirs = address.parse::<IpAddr>().ok().and_then(|address| {
        let bits = if address.is_ipv4() { 32_u8 } else { 128 };
        let prefix_len = (0..=bits).find(|n| prefix.unwrap_or(&bits.to_string()) == n.to_string());
        prefix_len.map(|prefix_len| (address, prefix_len))
    });
    assert_eq!(ours.ok().map(|cidr| (cidr.address(), cidr.prefix_len())), theirs, "{text:?}");
    if let Ok(cidr) = ours {
        assert_eq!(cidr.to_string().parse(), Ok(cidr));
        assert_eq!(Cidr::new(cidr.address(), cidr.prefix_len()), Some(cidr));
    }
}
