use core::net::Ipv6Addr;

use keepwatch::wire::Claim;
use keepwatch::wire::ndisc::{FRAME_LEN, PROBE_LEN, advertisement, parse_claim, probe};
use keepwatch::wire::rtnl::Mac;
use smoltcp::wire::{
    EthernetFrame, IPV6_LINK_LOCAL_ALL_NODES as ALL_NODES, Icmpv6Packet, Ipv6Packet,
};

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
    assert_eq!(host[58], 0x20, "O only");
}

#[test]
fn parses_its_own_claims() {
    assert_eq!(parse_claim(&ADVERTISEMENT), Some(Claim { mac: MAC, ip: IP.into() }));
}

#[test]
fn probe_claims_nothing() {
    #[rustfmt::skip]
    const PROBE: [u8; PROBE_LEN] = [
        0x33, 0x33, 0xff, 0x02, 0x03, 0x05, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x86, 0xdd,
        0x60, 0x00, 0x00, 0x00, 0x00, 0x18, 0x3a, 0xff,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 2, 3, 5,
        0x87, 0x00, 0x76, 0x99, 0x00, 0x00, 0x00, 0x00,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 5,
    ];
    assert_eq!(probe(MAC, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x102, 0x305)), PROBE);
    assert_eq!(parse_claim(&PROBE), None);
}

fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = [&ADVERTISEMENT[..78], options].concat();
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
    packet.set_payload_len(24 + u16::try_from(options.len()).unwrap());
    Icmpv6Packet::new_unchecked(packet.payload_mut()).fill_checksum(&IP, &ALL_NODES);
    bytes
}

#[test]
fn without_the_option_the_sender_counts() {
    assert_eq!(parse_claim(&with_options(&[])), Some(Claim { mac: MAC, ip: IP.into() }));
}

#[test]
fn anything_else_is_no_claim() {
    for len in 0..FRAME_LEN {
        assert_eq!(parse_claim(&ADVERTISEMENT[..len]), None, "{len} bytes");
    }
    // Ethertype, version, next header, hop limit, type, checksum, option type and length.
    for offset in [12, 14, 20, 21, 54, 56, 78, 79] {
        let mut other = ADVERTISEMENT;
        other[offset] ^= 0x40;
        assert_eq!(parse_claim(&other), None, "byte {offset}");
    }
}
