//! Frames: only valid ARP packets and advertisements are claims, and our own frames parse as what they are.

use std::net::{IpAddr, Ipv6Addr};

use keepwatch::wire::arp::Operation;
use keepwatch::wire::{Claim, arp, ndisc, parse_claim};
use smoltcp::wire::Icmpv6Packet;

/// Checks a received frame, also with the right checksum, which no fuzzer guesses.
pub fn check(frame: &[u8]) {
    is_justified(frame);
    if let Some(corrected) = corrected(frame) {
        is_justified(&corrected);
    }
    if let Some(bytes) = frame.first_chunk::<22>() {
        ours_are_received(taken(bytes, 0), bytes[6..].try_into().unwrap());
    }
}

fn is_justified(frame: &[u8]) {
    match parse_claim(frame) {
        Some(Claim { mac, ip: IpAddr::V4(ip) }) => {
            assert_eq!(frame[12..14], [0x08, 0x06], "ethertype");
            assert_eq!(frame[14..20], [0, 1, 8, 0, 6, 4], "IPv4 over Ethernet");
            assert_eq!((mac, ip.octets()), (taken(frame, 22), taken(frame, 28)));
            assert!(!ip.is_unspecified(), "a probe is no claim");
        }
        Some(Claim { mac, ip: IpAddr::V6(ip) }) => {
            assert_eq!(frame[12..14], [0x86, 0xdd], "ethertype");
            assert_eq!(
                (frame[14] >> 4, frame[20], frame[21]),
                (6, 58, 255),
                "not forwarded by a router"
            );
            let length = usize::from(u16::from_be_bytes(taken(frame, 18)));
            let message = &frame[54..54 + length];
            assert_eq!(message[0], 136, "an advertisement");
            let [source, destination] = [taken(frame, 22), taken(frame, 38)].map(Ipv6Addr::from);
            assert!(Icmpv6Packet::new_unchecked(message).verify_checksum(&source, &destination));
            assert_eq!(ip.octets(), taken(message, 8));
            // Only the first bytes of a longer option count.
            let is_option =
                |at| message[at] == 2 && message.get(at + 1).is_some_and(|len| *len > 0);
            let stated =
                (24..length).step_by(8).any(|at| is_option(at) && taken(message, at + 2) == mac);
            assert!(
                stated || mac == taken(frame, 6),
                "neither an option nor the source has the MAC"
            );
        }
        None => {}
    }
}

/// Returns the frame with the right checksum of an `ICMPv6` message.
fn corrected(frame: &[u8]) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes(*frame.get(18..)?.first_chunk()?));
    let mut frame = frame.to_vec();
    frame.get(..58)?;
    let [source, destination] = [taken(&frame, 22), taken(&frame, 38)].map(Ipv6Addr::from);
    let message = frame.get_mut(54..54 + length).filter(|_| length >= 4)?;
    Icmpv6Packet::new_unchecked(message).fill_checksum(&source, &destination);
    Some(frame)
}

fn ours_are_received(mac: [u8; 6], ip: [u8; 16]) {
    let v4: [u8; 4] = taken(&ip, 0);
    for operation in [Operation::Request, Operation::Reply] {
        let frame = arp::announcement(operation, mac, v4.into());
        let expected = (v4 != [0; 4]).then_some(Claim { mac, ip: v4.into() });
        assert_eq!(parse_claim(&frame), expected);
    }
    assert_eq!(parse_claim(&arp::probe(mac, mac, v4.into())), None);
    assert_eq!(parse_claim(&ndisc::probe(mac, ip.into())), None);
    for router in [true, false] {
        // Multicast addresses are never announced, see RFC 4861 section 7.1.2.
        if ip[0] != 0xff {
            let frame = ndisc::advertisement(mac, ip.into(), router);
            assert_eq!(parse_claim(&frame), Some(Claim { mac, ip: ip.into() }));
        }
    }
}

fn taken<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    bytes[at..at + LEN].try_into().unwrap()
}
