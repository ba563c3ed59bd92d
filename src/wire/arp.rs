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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn emits_both_kinds() {
        assert_eq!(announcement(Operation::Request, MAC, IP), REQUEST);
        assert_eq!(announcement(Operation::Reply, MAC, IP), REPLY);
    }

    #[test]
    fn parses_its_own_claims() {
        let claimed = Some(Claim { mac: MAC, ip: IP.into() });
        assert_eq!(parse_claim(&REQUEST), claimed);
        assert_eq!(parse_claim(&REPLY), claimed);
    }

    #[test]
    fn probe_claims_nothing() {
        let mut probe = REQUEST;
        probe[28..32].fill(0);
        assert_eq!(parse_claim(&probe), None);
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
}
