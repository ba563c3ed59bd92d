use core::net::Ipv4Addr;

use keepwatch::wire::Claim;
use keepwatch::wire::arp::{FRAME_LEN, Operation, announcement, parse_claim, probe};
use keepwatch::wire::rtnl::Mac;

use crate::assert_fields;

const MAC: Mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

#[rustfmt::skip]
const REQUEST: [u8; FRAME_LEN] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x08, 0x06,
    0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01,
    0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 10, 0, 0, 1,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 10, 0, 0, 1,
];

/// The Ethernet header, and RFC 826.
const FIELDS: &str =
    "destination:6 source:6 ethertype:2 hardware:2 protocol:2 lengths:2 operation:2
    sender-mac:6 sender-address:4 target-mac:6 target-address:4";

#[test]
fn emits_and_parses_both_kinds() {
    let mut reply = REQUEST;
    reply[21] = 2;
    reply[32..38].copy_from_slice(&MAC);
    for (operation, frame) in [(Operation::Request, REQUEST), (Operation::Reply, reply)] {
        assert_fields(&announcement(operation, MAC, IP), &frame, FIELDS);
        assert_eq!(parse_claim(&frame), Some(Claim { mac: MAC, ip: IP.into() }));
    }
}

#[test]
fn probe_claims_nothing() {
    let mut expected = REQUEST;
    expected[28..32].fill(0);
    assert_fields(&probe(MAC, MAC, IP), &expected, FIELDS);
    assert_eq!(parse_claim(&expected), None);
    // The answer goes to the broadcast address.
    expected[22..28].fill(0xff);
    assert_fields(&probe(MAC, [0xff; 6], IP), &expected, FIELDS);
}
