//! Frames: only valid ARP packets, advertisements and our probes are read, and our own frames parse as what they are.

use std::net::{IpAddr, Ipv6Addr};

use keepwatch::wire::arp::Operation;
use keepwatch::wire::{Claim, ClaimKind, arp, ndisc, parse_claim};
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
        Some(Claim { mac, ip: IpAddr::V4(ip), kind }) => {
            assert_eq!(frame[12..14], [0x08, 0x06], "ethertype");
            assert_eq!(frame[14..20], [0, 1, 8, 0, 6, 4], "IPv4 over Ethernet");
            let is_probe = kind == ClaimKind::Probe;
            let (mac_at, ip_at) = if is_probe { (6, 38) } else { (22, 28) };
            assert_eq!((mac, ip.octets()), (taken(frame, mac_at), taken(frame, ip_at)));
            let sender: [u8; 4] = taken(frame, 28);
            assert_eq!(is_probe, sender == [0; 4], "a probe is no claim");
            let is_answer = frame[20..22] == [0, 2] && frame[38..42] != sender;
            assert_eq!(kind == ClaimKind::Answer, is_answer, "a reply to another address");
        }
        Some(Claim { mac, ip: IpAddr::V6(ip), kind }) => {
            assert_eq!(frame[12..14], [0x86, 0xdd], "ethertype");
            assert_eq!(
                (frame[14] >> 4, frame[20], frame[21]),
                (6, 58, 255),
                "not forwarded by a router"
            );
            let length = usize::from(u16::from_be_bytes(taken(frame, 18)));
            let message = &frame[54..54 + length];
            let label = u32::from_be_bytes(taken(frame, 14)) & 0xf_ffff;
            let expected = match message[0] {
                135 if label == ndisc::PROBE_LABEL => Some(ClaimKind::Probe),
                136 if message[4] & 0x40 == 0 => Some(ClaimKind::Unsolicited),
                136 => Some(ClaimKind::Answer),
                _ => None,
            };
            assert_eq!(Some(kind), expected, "a probe of ours, or the flag S");
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
        let unsolicited = Claim { mac, ip: v4.into(), kind: ClaimKind::Unsolicited };
        let unspecified = Claim { kind: ClaimKind::Probe, ..unsolicited };
        let is_request = operation == Operation::Request;
        let expected =
            if v4 == [0; 4] { is_request.then_some(unspecified) } else { Some(unsolicited) };
        assert_eq!(parse_claim(&frame), expected);
    }
    let probe = arp::probe_from(mac, (mac, [0; 4].into()), v4.into());
    assert_eq!(parse_claim(&probe).map(|claim| claim.kind), Some(ClaimKind::Probe));
    let asked = Some(Claim { mac, ip: ip.into(), kind: ClaimKind::Probe });
    assert_eq!(parse_claim(&ndisc::probe(mac, ip.into())), asked);
    assert_eq!(parse_claim(&ndisc::probe_from(mac, ip.into(), ip.into())), asked);
    for router in [true, false] {
        // Multicast addresses are never announced, see RFC 4861 section 7.1.2.
        if ip[0] != 0xff {
            let frame = ndisc::advertisement(mac, ip.into(), router);
            assert_eq!(
                parse_claim(&frame),
                Some(Claim { mac, ip: ip.into(), kind: ClaimKind::Unsolicited })
            );
        }
    }
}

fn taken<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    bytes[at..at + LEN].try_into().unwrap()
}
