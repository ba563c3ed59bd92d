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

#[test]
fn emits_and_parses_both_kinds() {
    let mut reply = REQUEST;
    reply[21] = 2;
    reply[32..38].copy_from_slice(&MAC);
    for (operation, frame) in [(Operation::Request, REQUEST), (Operation::Reply, reply)] {
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
