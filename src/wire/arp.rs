//! ARP for IPv4 (RFC 826, RFC 5227): a host broadcasts the MAC of its address, or asks who else has it.

use core::net::Ipv4Addr;

pub use smoltcp::wire::ArpOperation as Operation;
use smoltcp::wire::{
    ArpPacket, ArpRepr, ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr,
};

use super::rtnl::Mac;
use super::{Claim, ClaimKind};

/// Length of an Ethernet frame with an ARP packet for IPv4.
pub const FRAME_LEN: usize = ETHERNET_HEADER_LEN + 28;

/// The target MAC of a request.
const UNKNOWN: Mac = [0; 6];

/// Returns a broadcast in which `mac` claims `ip`, as a request or as a reply.
///
/// Some hosts learn from requests, others from replies. Sender and target are both `ip` (RFC 5227 section 3). The target
/// MAC is zero in a request and the sender's in a reply.
pub fn announcement(operation: Operation, mac: Mac, ip: Ipv4Addr) -> [u8; FRAME_LEN] {
    let target = if operation == Operation::Reply { mac } else { UNKNOWN };
    broadcast(mac, operation, (mac, ip), (target, ip))
}

/// Returns a request: `mac` asks who has `ip`. The answer goes to the MAC in `from`.
///
/// With the unspecified address in `from` it is a probe (RFC 5227 section 1.1), which changes no host's cache.
pub fn probe_from(mac: Mac, from: (Mac, Ipv4Addr), ip: Ipv4Addr) -> [u8; FRAME_LEN] {
    broadcast(mac, Operation::Request, from, (UNKNOWN, ip))
}

fn broadcast(
    mac: Mac,
    operation: Operation,
    source: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
) -> [u8; FRAME_LEN] {
    let mut bytes = [0; FRAME_LEN];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr {
        src_addr: EthernetAddress(mac),
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    }
    .emit(&mut frame);
    ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(source.0),
        source_protocol_addr: source.1,
        target_hardware_addr: EthernetAddress(target.0),
        target_protocol_addr: target.1,
    }
    .emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}

/// Parses the sender's claim in an ARP packet, even in a request for another address. A reply for another address than
/// the sender's is an answer.
///
/// A probe (RFC 5227 section 1.1) claims nothing: its sender is 0.0.0.0. Its address is the target.
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Arp {
        return None;
    }
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: sender,
        source_protocol_addr: claimed,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let (mac, ip, kind) = match operation {
        Operation::Request if claimed.is_unspecified() => {
            (frame.src_addr(), target, ClaimKind::Probe)
        }
        _ if claimed.is_unspecified() => return None,
        Operation::Reply if target != claimed => (sender, claimed, ClaimKind::Answer),
        _ => (sender, claimed, ClaimKind::Unsolicited),
    };
    Some(Claim { mac: mac.0, ip: ip.into(), kind })
}
