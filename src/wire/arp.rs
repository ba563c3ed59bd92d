//! Gratuitous ARP: a host broadcasts the MAC of its IPv4 address (RFC 826, RFC 5227).

use core::net::Ipv4Addr;

pub use smoltcp::wire::ArpOperation as Operation;
use smoltcp::wire::{
    ArpPacket, ArpRepr, ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr,
};

use super::Claim;
use super::rtnl::Mac;

/// Length of an Ethernet frame with an ARP packet for IPv4.
pub const FRAME_LEN: usize = ETHERNET_HEADER_LEN + 28;

/// A broadcast in which `mac` claims `ip`, as a request or as a reply.
///
/// Some hosts learn from the one, some from the other. Sender and target are both `ip` (RFC 5227
/// section 3). The target MAC is zero in a request and the sender's in a reply.
pub fn announcement(operation: Operation, mac: Mac, ip: Ipv4Addr) -> [u8; FRAME_LEN] {
    let mut bytes = [0; FRAME_LEN];
    let mac = EthernetAddress(mac);
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr {
        src_addr: mac,
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    }
    .emit(&mut frame);
    ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: mac,
        source_protocol_addr: ip,
        target_hardware_addr: match operation {
            Operation::Reply => mac,
            _ => EthernetAddress([0; 6]),
        },
        target_protocol_addr: ip,
    }
    .emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}

/// Parses the sender's claim in an ARP packet, even in a request for another address.
///
/// A probe (RFC 5227 section 1.1) claims nothing: its sender is 0.0.0.0.
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Arp {
        return None;
    }
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, .. } =
        ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let claimed = !source_protocol_addr.is_unspecified();
    claimed.then_some(Claim { mac: source_hardware_addr.0, ip: source_protocol_addr.into() })
}
