//! Netlink datagrams: parsing always ends, and returns exactly the messages in the bytes.

use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link, Message, Messages};

/// Parses the datagram again by offsets, and compares each message.
pub fn check(datagram: &[u8]) {
    let mut messages = Messages::new(datagram);
    let mut rest = datagram;
    while let Some(message) = messages.next() {
        match (message, split_message(rest)) {
            (Ok(message), Some((raw, behind))) => {
                compare(&message, raw);
                rest = behind;
            }
            (Ok(message), None) => panic!("not in the datagram: {message:?}"),
            (Err(_), Some((raw, behind))) => {
                assert!(INTERESTING.contains(&half(raw, 4)), "irrelevant but malformed: {raw:?}");
                rest = behind;
            }
            (Err(_), None) => {
                assert_eq!(messages.next(), None, "a message after an unknown length");
                return;
            }
        }
    }
    assert!(rest.is_empty(), "left over: {rest:?}");
}

const DONE: u16 = 3;
const ERROR: u16 = 2;
const OVERRUN: u16 = 4;
const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
const NEWNETCONF: u16 = 80;
/// Messages whose content may be malformed.
const INTERESTING: [u16; 7] = [ERROR, OVERRUN, NEWLINK, DELLINK, NEWADDR, DELADDR, NEWNETCONF];

/// Returns the first message without padding, and the rest.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.len() < 16 {
        return None;
    }
    let length = word(bytes, 0) as usize;
    if length < 16 || length > bytes.len() {
        return None;
    }
    let aligned = length.next_multiple_of(4);
    Some((&bytes[..length], &bytes[aligned.min(bytes.len())..]))
}

fn compare(message: &Message, raw: &[u8]) {
    let (kind, payload) = (half(raw, 4), &raw[16..]);
    assert_eq!(message.interrupted, half(raw, 6) & 0x10 != 0);
    assert_eq!(message.sequence, word(raw, 8));
    match &message.body {
        Body::NewAddress(address) => compare_address(address, kind == NEWADDR, payload),
        Body::DelAddress(address) => compare_address(address, kind == DELADDR, payload),
        Body::NewLink(link) => compare_link(link, kind == NEWLINK, payload),
        Body::DelLink(link) => compare_link(link, kind == DELLINK, payload),
        Body::Ipv6Forwarding { ifindex, on } => {
            assert!(kind == NEWNETCONF && payload[0] == 10);
            let attributes = attributes(&payload[4..]);
            assert_eq!(word(first(&attributes, 1).unwrap(), 0), *ifindex);
            assert_eq!(word(first(&attributes, 2).unwrap(), 0) != 0, *on);
        }
        Body::Done(errno) => {
            let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
            let is_answer = kind == ERROR && payload.len() >= 4 && code <= 0;
            assert!(kind == DONE || is_answer);
            assert_eq!(*errno, (code < 0).then(|| code.saturating_neg()));
        }
        Body::Other => match kind {
            NEWLINK | DELLINK => assert_ne!(payload[0], 0, "only another family's are ignored"),
            NEWADDR | DELADDR => assert!(![2, 10].contains(&payload[0]), "an IP address"),
            ERROR => assert_eq!(word(payload, 0), 0, "only an acknowledgement is ignored"),
            kind => assert!(![DONE, OVERRUN].contains(&kind)),
        },
    }
}

fn compare_address(address: &Address, right_kind: bool, payload: &[u8]) {
    assert!(right_kind);
    assert_eq!(payload[0], if address.peer.is_ipv4() { 2 } else { 10 });
    assert_eq!(address.cidr.prefix_len(), payload[1]);
    assert_eq!(address.ifindex, word(payload, 4));
    assert_ne!(address.ifindex, 0, "no interface has index 0");
    let attributes = attributes(&payload[8..]);
    let (local, other) = (last(&attributes, 2), last(&attributes, 1));
    let octets = |ip| match ip {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    assert_eq!(Some(&octets(address.cidr.address())[..]), local.or(other));
    // The kernel leaves out a peer of zeros.
    let no_peer = if address.peer.is_ipv4() { Some(&[0; 4][..]) } else { local };
    assert_eq!(Some(&octets(address.peer)[..]), other.or(no_peer));
    // Irrelevant attributes may be malformed.
    let flags = last(&attributes, 8).filter(|flags| flags.len() == 4);
    let flags = flags.map_or(payload[2].into(), |flags| word(flags, 0));
    assert_eq!(address.flags.bits(), flags);
    let times = last(&attributes, 6).filter(|info| info.len() >= 16);
    let [created, updated] = times.map_or([0; 2], |info| [8, 12].map(|at| word(info, at)));
    let later = updated.wrapping_sub(created).cast_signed();
    let is_new =
        if address.peer.is_ipv4() { later == 0 } else { (-200_000..=500).contains(&later) };
    assert_eq!((address.created, address.refreshed), (created, !is_new));
}

fn compare_link(link: &Link, right_kind: bool, payload: &[u8]) {
    assert!(right_kind && payload[0] == 0);
    assert_eq!(link.ifindex, word(payload, 4));
    assert_ne!(link.ifindex, 0, "no interface has index 0");
    assert_eq!(link.flags.bits(), word(payload, 8));
    let attributes = attributes(&payload[16..]);
    let name = last(&attributes, 3).map(|name| name.strip_suffix(b"\0").unwrap_or(name));
    assert_eq!(link.name.as_ref().map(InterfaceName::as_bytes), name);
    if let Some(name) = name {
        assert!(
            (1..16).contains(&name.len()) && !name.iter().any(|byte| b"/: \0\n".contains(byte))
        );
    }
    assert_eq!(link.ethernet, half(payload, 2) == 1);
    let mac = last(&attributes, 1).filter(|_| link.ethernet);
    assert_eq!(link.mac.as_ref().map(|mac| &mac[..]), mac.filter(|mac| mac.len() == 6));
    let is_elsewhere = attributes.iter().any(|(kind, _)| *kind == 37);
    let parent = last(&attributes, 5).filter(|parent| parent.len() == 4 && !is_elsewhere);
    assert_eq!(link.parent, parent.map(|parent| word(parent, 0)));
    let changes = last(&attributes, 35).filter(|changes| changes.len() == 4);
    let changes = changes.map(|changes| word(changes, 0));
    assert_eq!(link.carrier_changes, changes);
    let families = last(&attributes, 26).map(self::attributes).unwrap_or_default();
    let inet6 = first(&families, 10).map(self::attributes).unwrap_or_default();
    let forwarding = first(&inet6, 2).filter(|settings| settings.len() >= 4);
    assert_eq!(link.ipv6_forwarding, forwarding.map(|settings| word(settings, 0) != 0));
}

type Attributes<'a> = Vec<(u16, &'a [u8])>;

/// Returns each `struct nlattr` up to the first that does not fit, by its kind without flags.
fn attributes(mut bytes: &[u8]) -> Attributes<'_> {
    let mut attributes = Vec::new();
    while bytes.len() >= 4 {
        let length = usize::from(half(bytes, 0));
        if length < 4 || length > bytes.len() {
            break;
        }
        attributes.push((half(bytes, 2) & 0x3fff, &bytes[4..length]));
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    attributes
}

fn first<'a>(attributes: &Attributes<'a>, kind: u16) -> Option<&'a [u8]> {
    attributes.iter().find(|attribute| attribute.0 == kind).map(|attribute| attribute.1)
}

fn last<'a>(attributes: &Attributes<'a>, kind: u16) -> Option<&'a [u8]> {
    attributes.iter().rfind(|attribute| attribute.0 == kind).map(|attribute| attribute.1)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}
