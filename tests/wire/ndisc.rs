use core::net::Ipv6Addr;

use keepwatch::wire::ndisc::{FRAME_LEN, PROBE_LEN, advertisement, parse_claim, probe, probe_from};
use keepwatch::wire::rtnl::Mac;
use keepwatch::wire::{Claim, ClaimKind};
use smoltcp::wire::Icmpv6Packet;

const MAC: Mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const IP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);

#[rustfmt::skip]
const ADVERTISEMENT: [u8; FRAME_LEN] = [
    0x33, 0x33, 0x00, 0x00, 0x00, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x86, 0xdd,
    0x60, 0x00, 0x00, 0x00, 0x00, 0x20, 0x3a, 0xff,
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5,
    0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    0x88, 0x00, 0x73, 0xfa, 0xa0, 0x00, 0x00, 0x00,
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5,
    0x02, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55,
];

#[test]
fn emits_for_a_router_and_for_a_host() {
    assert_eq!(advertisement(MAC, IP, true), ADVERTISEMENT);
    let host = advertisement(MAC, IP, false);
    assert_eq!(host[58], 0x20, "only the flag O");
}

#[test]
fn probe_claims_nothing_and_has_a_label() {
    #[rustfmt::skip]
    const PROBE: [u8; PROBE_LEN] = [
        0x33, 0x33, 0xff, 0x02, 0x03, 0x05, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x86, 0xdd,
        0x60, 0x00, 0x6b, 0x77, 0x00, 0x18, 0x3a, 0xff,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 2, 3, 5,
        0x87, 0x00, 0x76, 0x99, 0x00, 0x00, 0x00, 0x00,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 5,
    ];
    let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x102, 0x305);
    assert_eq!(probe(MAC, target), PROBE);
    let asked = Claim { mac: MAC, ip: target.into(), kind: ClaimKind::Probe };
    assert_eq!(parse_claim(&PROBE), Some(asked));
    let mut of_a_host = PROBE;
    of_a_host[16..18].fill(0);
    assert_eq!(parse_claim(&of_a_host), None);
}

#[test]
fn probe_has_an_address_for_the_answer() {
    #[rustfmt::skip]
    const PROBE_FROM: [u8; FRAME_LEN] = [
        0x33, 0x33, 0xff, 0x02, 0x03, 0x05, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x86, 0xdd,
        0x60, 0x00, 0x6b, 0x77, 0x00, 0x20, 0x3a, 0xff,
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 2, 3, 5,
        0x87, 0x00, 0, 0, 0x00, 0x00, 0x00, 0x00,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 5,
        0x01, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55,
    ];
    let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x102, 0x305);
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let mut frame = probe_from(MAC, from, target);
    frame[56..58].fill(0);
    assert_eq!(frame, PROBE_FROM);
    let asked = Claim { mac: MAC, ip: target.into(), kind: ClaimKind::Probe };
    assert_eq!(parse_claim(&probe_from(MAC, from, target)), Some(asked));
}

/// A proxy's advertisement does not override, and so claims nothing.
#[test]
fn solicited_advertisement_is_an_answer() {
    let kinds =
        [(0x60, Some(ClaimKind::Answer)), (0x20, Some(ClaimKind::Unsolicited)), (0x40, None)];
    for (flags, kind) in kinds {
        let mut frame = ADVERTISEMENT;
        frame[58] = flags;
        let source = frame[22..38].try_into().map(<[u8; 16]>::into).unwrap();
        let group = frame[38..54].try_into().map(<[u8; 16]>::into).unwrap();
        Icmpv6Packet::new_unchecked(&mut frame[54..]).fill_checksum(&source, &group);
        let claim = kind.map(|kind| Claim { mac: MAC, ip: IP.into(), kind });
        assert_eq!(parse_claim(&frame), claim);
    }
}
