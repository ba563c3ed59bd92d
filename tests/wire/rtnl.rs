use std::net::IpAddr;

use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{
    Body, Malformed, Messages, request_addresses, request_link, request_link_named, request_links,
};
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};
use netlink_packet_route::AddressFamily;
use nix::libc;

/// The length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;

/// Returns a message in the byte order of this host: header, fixed part, attributes.
fn message(kind: u16, flags: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let attributes = attributes.iter().flat_map(|(kind, value)| nla(*kind, value));
    let payload: Vec<u8> = fixed.iter().copied().chain(attributes).collect();
    let len = u32::try_from(HEADER_LEN + payload.len()).unwrap().to_ne_bytes();
    let numbers = [7_u32.to_ne_bytes(), 9_u32.to_ne_bytes()].concat();
    [&len[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &numbers, &payload].concat()
}

/// Returns an attribute with padding.
fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap();
    let mut nla = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    nla.resize(nla.len().next_multiple_of(4), 0);
    nla
}

fn ifaddrmsg(family: u8, prefix_len: u8, flags: u8, ifindex: u32) -> Vec<u8> {
    [&[family, prefix_len, flags, 0][..], &ifindex.to_ne_bytes()].concat()
}

fn ifinfomsg(family: u8, arphrd: u16, ifindex: u32, flags: u32) -> Vec<u8> {
    let words = [ifindex.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat();
    [&[family, 0][..], &arphrd.to_ne_bytes(), &words].concat()
}

fn bodies(datagram: &[u8]) -> Vec<Result<Body, Malformed>> {
    Messages::new(datagram).map(|message| message.map(|message| message.body)).collect()
}

const INET: u8 = 2;
const INET6: u8 = 10;
const VIP: [u8; 4] = [169, 254, 0, 5];

#[test]
fn parses_a_change_of_forwarding() {
    let change = |family, ifindex: i32, forwarding: i32| {
        let (ifindex, forwarding) = (ifindex.to_ne_bytes(), forwarding.to_ne_bytes());
        let attributes: [(u16, &[u8]); 2] = [(1, &ifindex), (2, &forwarding)];
        bodies(&message(libc::RTM_NEWNETCONF, 0, &[family, 0, 0, 0], &attributes))
    };
    assert_eq!(change(INET6, 3, 1), [Ok(Body::Ipv6Forwarding { ifindex: 3, on: true })]);
    assert_eq!(change(INET6, 3, 0), [Ok(Body::Ipv6Forwarding { ifindex: 3, on: false })]);
    assert_eq!(change(INET, 3, 1), [Ok(Body::Other)]);
    assert_eq!(bodies(&message(libc::RTM_NEWNETCONF, 0, &[], &[])), [Ok(Body::Other)]);
}

#[test]
fn ends_of_a_dump() {
    let end = |kind, code: i32| bodies(&message(kind, 2, &code.to_ne_bytes(), &[]));
    assert_eq!(end(NLMSG_DONE, 0), [Ok(Body::Done(None))]);
    assert_eq!(end(NLMSG_DONE, -19), [Ok(Body::Done(Some(19)))]);
    assert_eq!(end(NLMSG_ERROR, -16), [Ok(Body::Done(Some(16)))]);
    assert_eq!(end(NLMSG_ERROR, 0), [Ok(Body::Done(None))], "an acknowledgement");
    assert_eq!(end(NLMSG_ERROR, i32::MIN), [Ok(Body::Done(Some(i32::MAX)))]);
    assert_eq!(end(NLMSG_DONE, 5), [Ok(Body::Done(None))], "no errno");
    assert_eq!(end(NLMSG_ERROR, 5), [Err(Malformed(None))]);
    assert_eq!(bodies(&message(NLMSG_DONE, 2, &[], &[])), [Ok(Body::Done(None))]);
    assert_eq!(bodies(&message(NLMSG_OVERRUN, 0, &[], &[])), [Err(Malformed(None))]);
}

#[test]
fn every_cut_is_malformed_and_ends_the_datagram() {
    let fixed = ifaddrmsg(INET, 24, 0, 3);
    let new = message(libc::RTM_NEWADDR, 0, &fixed, &[(1, &VIP), (2, &VIP)]);
    for len in 1..new.len() {
        assert_eq!(bodies(&new[..len]), [Err(Malformed(None))], "{len} bytes");
    }
    // With a consistent length, the message itself is malformed.
    for len in 1..new.len() - HEADER_LEN {
        let len = HEADER_LEN + len;
        let mut cut = new[..len].to_vec();
        cut[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
        // Without IFA_LOCAL it is still valid.
        let expected = usize::from(len != 32);
        let malformed = bodies(&cut).iter().filter(|body| body.is_err()).count();
        assert_eq!(malformed, expected, "{len} bytes");
    }
}

#[test]
fn hostile_lengths_and_values_are_malformed() {
    let fixed = ifaddrmsg(INET, 24, 0, 3);
    let mut short = message(libc::RTM_NEWADDR, 0, &fixed, &[(1, &VIP)]);
    for len in [0_u32, 15, 0x7fff_ffff, 0xffff_ffff] {
        short[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(bodies(&short), [Err(Malformed(None))], "{len}");
    }
    let wrong: [&[(u16, &[u8])]; 3] = [&[], &[(1, &[1, 2, 3])], &[(1, &[0; 16])]];
    let about = Err(Malformed(Some(3)));
    for attributes in wrong {
        let new = message(libc::RTM_NEWADDR, 0, &fixed, attributes);
        assert_eq!(bodies(&new), std::slice::from_ref(&about), "{attributes:?}");
        let next = message(libc::RTM_NEWADDR, 0, &fixed, &[(1, &VIP)]);
        let both = bodies(&[new, next].concat());
        assert!(matches!(both[..], [Err(_), Ok(Body::NewAddress(_))]), "{both:?}");
    }
    let long = message(libc::RTM_NEWADDR, 0, &ifaddrmsg(INET, 33, 0, 3), &[(1, &VIP)]);
    assert_eq!(bodies(&long), std::slice::from_ref(&about));
    let nowhere = message(libc::RTM_NEWADDR, 0, &ifaddrmsg(INET, 24, 0, 0), &[(1, &VIP)]);
    assert_eq!(bodies(&nowhere), [Err(Malformed(None))], "no interface has index 0");
    let nothing = message(libc::RTM_NEWLINK, 0, &ifinfomsg(0, 1, 0, 0), &[]);
    assert_eq!(bodies(&nothing), [Err(Malformed(None))], "no interface has index 0");
    let name = message(libc::RTM_NEWLINK, 0, &ifinfomsg(0, 1, 3, 0), &[(3, b"a/b\0")]);
    assert_eq!(bodies(&name), [about]);
}

/// Its index is one of another namespace.
#[test]
fn parent_elsewhere_is_none() {
    let [parent, netns] = [7_u32, 0].map(u32::to_ne_bytes);
    for (attributes, expected) in
        [(&[(5, &parent[..])][..], Some(7)), (&[(5, &parent), (37, &netns)], None)]
    {
        let bodies = bodies(&message(libc::RTM_NEWLINK, 0, &ifinfomsg(0, 1, 3, 1), attributes));
        let [Ok(Body::NewLink(link))] = &bodies[..] else { panic!("{bodies:?}") };
        assert_eq!(link.parent, expected);
    }
}

/// The kernel leaves the attribute out, as its value is 0.
#[test]
fn peer_of_zeros_is_one() {
    let fixed = ifaddrmsg(INET, 24, 0, 3);
    for (attributes, expected) in [(&[(2, &VIP[..])][..], [0; 4]), (&[(1, &VIP), (2, &VIP)], VIP)] {
        let bodies = bodies(&message(libc::RTM_NEWADDR, 0, &fixed, attributes));
        let [Ok(Body::NewAddress(address))] = bodies[..] else { panic!("{bodies:?}") };
        assert_eq!(address.peer, IpAddr::from(expected));
    }
}

#[test]
fn new_address_may_have_been_updated() {
    let ll = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for (family, ip, created, updated, expected) in [
        (INET, &VIP[..], 1000, 1000, false),
        (INET, &VIP, 1000, 1001, true),
        // After a second router advertisement, amid duplicate address detection.
        (INET6, &ll, 1000, 1500, false),
        (INET6, &ll, 1000, 1501, true),
        // Temporary addresses.
        (INET6, &ll, 200_000, 0, false),
        (INET6, &ll, u32::MAX, 499, false),
        (INET6, &ll, 200_001, 0, true),
    ] {
        let times = [0, 0, created, updated].map(u32::to_ne_bytes).concat();
        let attributes = [(1, ip), (2, ip), (6, &times)];
        let bodies =
            bodies(&message(libc::RTM_NEWADDR, 0, &ifaddrmsg(family, 24, 0, 3), &attributes));
        let [Ok(Body::NewAddress(address))] = bodies[..] else { panic!("{bodies:?}") };
        assert_eq!((address.created, address.refreshed), (created, expected), "{updated}");
    }
}

#[test]
fn irrelevant_attributes_may_be_malformed() {
    let fixed = ifaddrmsg(INET, 24, 0, 3);
    for attribute in [(8, &[0; 3][..]), (6, &[0; 3])] {
        let new = message(libc::RTM_NEWADDR, 0, &fixed, &[(1, &VIP), attribute]);
        assert!(matches!(bodies(&new)[..], [Ok(Body::NewAddress(_))]), "{attribute:?}");
    }
    let name = (3, &b"eth0\0"[..]);
    for attribute in [(35, &[0; 3][..]), (1, &[0; 5]), (26, &[0; 3])] {
        let new = message(libc::RTM_NEWLINK, 0, &ifinfomsg(0, 1, 3, 0), &[name, attribute]);
        assert!(matches!(bodies(&new)[..], [Ok(Body::NewLink(_))]), "{attribute:?}");
    }
}

/// Since Linux 3.14; the header has room for eight flags.
#[test]
fn attribute_with_flags_replaces_those_of_the_header() {
    let flags = |attributes: &[(u16, &[u8])]| {
        let new = message(libc::RTM_NEWADDR, 0, &ifaddrmsg(INET, 24, 0x80, 3), attributes);
        let [Ok(Body::NewAddress(address))] = bodies(&new)[..] else { panic!("{new:?}") };
        address.flags.bits()
    };
    assert_eq!(flags(&[(2, &VIP)]), 0x80);
    assert_eq!(flags(&[(2, &VIP), (8, &0x280_u32.to_ne_bytes())]), 0x280);
}

#[test]
fn requests_have_the_format_of_the_kernel() {
    let (any, mask) = (ifinfomsg(0, 0, 0, 0), 8_u32.to_ne_bytes());
    let links = message(libc::RTM_GETLINK, 0x301, &any, &[(29, &mask)]);
    let name = InterfaceName::new(b"ha0").unwrap();
    let link = message(libc::RTM_GETLINK, 5, &any, &[(3, b"ha0\0\0\0\0\0\0\0\0\0\0\0\0\0")]);
    let addresses = message(libc::RTM_GETADDR, 0x301, &ifaddrmsg(10, 0, 0, 3), &[]);
    // The kernel's port is 0.
    let with_port = |mut bytes: Vec<u8>, port: u32| {
        bytes[12..16].copy_from_slice(&port.to_ne_bytes());
        bytes
    };
    assert_eq!(request_links(7)[..], with_port(links, 0));
    assert_eq!(request_link_named(7, &name)[..], with_port(link, 0));
    let link = message(libc::RTM_GETLINK, 5, &ifinfomsg(0, 0, 9, 0), &[]);
    assert_eq!(request_link(7, 9)[..], with_port(link, 0));
    assert_eq!(request_addresses(7, AddressFamily::Inet6, 3)[..], with_port(addresses, 0));
}
