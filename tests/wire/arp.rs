use core::net::Ipv4Addr;

use keepwatch::wire::arp::{FRAME_LEN, Operation, announcement, parse_claim, probe_from};
use keepwatch::wire::rtnl::Mac;
use keepwatch::wire::{Claim, ClaimKind};

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
        assert_eq!(parse_claim(&frame), Some(claim(ClaimKind::Unsolicited)));
    }
}

fn claim(kind: ClaimKind) -> Claim {
    Claim { mac: MAC, ip: IP.into(), kind }
}

#[test]
fn probe_claims_nothing() {
    let mut expected = REQUEST;
    expected[28..32].fill(0);
    assert_eq!(probe_from(MAC, (MAC, Ipv4Addr::UNSPECIFIED), IP), expected);
    assert_eq!(parse_claim(&expected), Some(claim(ClaimKind::Probe)));
    // The answer goes to the broadcast address.
    expected[22..28].fill(0xff);
    assert_eq!(probe_from(MAC, ([0xff; 6], Ipv4Addr::UNSPECIFIED), IP), expected);
    // A reply without a sender says nothing.
    expected[21] = 2;
    assert_eq!(parse_claim(&expected), None);
}

#[test]
fn answer_is_for_the_prober() {
    let own = Ipv4Addr::new(10, 0, 0, 9);
    let mut frame = probe_from([2; 6], ([2; 6], own), IP);
    let asked = Claim { mac: [2; 6], ip: own.into(), kind: ClaimKind::Unsolicited };
    assert_eq!(parse_claim(&frame), Some(asked), "a request claims its sender's address");
    frame[21] = 2;
    frame[22..28].copy_from_slice(&MAC);
    frame[28..32].copy_from_slice(&IP.octets());
    frame[38..42].copy_from_slice(&own.octets());
    assert_eq!(parse_claim(&frame), Some(claim(ClaimKind::Answer)));
}
