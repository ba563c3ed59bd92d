use core::net::Ipv4Addr;

use keepwatch::wire::Claim;
use keepwatch::wire::arp::{FRAME_LEN, Operation, announcement, parse_claim, probe};
use keepwatch::wire::rtnl::Mac;

const MAC: Mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

#[rustfmt::skip]
const REQUEST: [u8; FRAME_LEN] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x08, 0x06,
    0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01,
    0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 10, 0, 0, 1,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 10, 0, 0, 1,
];

#[rustfmt::skip]
const REPLY: [u8; FRAME_LEN] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x08, 0x06,
    0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x02,
    0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 10, 0, 0, 1,
    0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 10, 0, 0, 1,
];

#[test]
fn emits_and_parses_both_kinds() {
    for (operation, frame) in [(Operation::Request, REQUEST), (Operation::Reply, REPLY)] {
        assert_eq!(announcement(operation, MAC, IP), frame);
        assert_eq!(parse_claim(&frame), Some(Claim { mac: MAC, ip: IP.into() }));
    }
}

#[test]
fn probe_claims_nothing() {
    let mut expected = REQUEST;
    expected[28..32].fill(0);
    assert_eq!(probe(MAC, MAC, IP), expected);
    assert_eq!(parse_claim(&expected), None);
    expected[22..28].fill(0xff);
    assert_eq!(probe(MAC, [0xff; 6], IP), expected, "with the answer to all");
}

#[test]
fn anything_else_is_no_claim() {
    for len in 0..FRAME_LEN {
        assert_eq!(parse_claim(&REQUEST[..len]), None, "{len} bytes");
    }
    // Another ethertype, hardware, protocol, address length.
    for offset in [12, 15, 16, 18, 19] {
        let mut other = REQUEST;
        other[offset] ^= 0x40;
        assert_eq!(parse_claim(&other), None, "byte {offset}");
    }
}
