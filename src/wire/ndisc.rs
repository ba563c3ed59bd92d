//! Unsolicited neighbour advertisements, the IPv6 counterpart of gratuitous ARP (RFC 4861 section 7.2.6).

use core::net::Ipv6Addr;

use smoltcp::wire::{
    ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IPV6_HEADER_LEN, IPV6_LINK_LOCAL_ALL_NODES as ALL_NODES, Icmpv6Message, Icmpv6Packet,
    IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};

use super::Claim;
use super::rtnl::Mac;

/// An advertisement of 24 bytes and an option with a MAC of 8.
const MESSAGE_LEN: usize = 32;
/// Length of an Ethernet frame with an advertisement and the target's MAC.
pub const FRAME_LEN: usize = ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + MESSAGE_LEN;

/// Where `ff02::1` is sent to (RFC 2464 section 7).
const ALL_NODES_MAC: EthernetAddress = EthernetAddress([0x33, 0x33, 0, 0, 0, 1]);
/// Shows that a packet has crossed no router (RFC 4861 section 7.1.2).
const HOP_LIMIT: u8 = 255;

/// A multicast in which `mac` claims `ip`, overriding the neighbours' caches. `router` must say whether the
/// interface forwards: hosts drop a default router that says no.
pub fn advertisement(mac: Mac, ip: Ipv6Addr, router: bool) -> [u8; FRAME_LEN] {
    let mut bytes = [0; FRAME_LEN];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr {
        src_addr: EthernetAddress(mac),
        dst_addr: ALL_NODES_MAC,
        ethertype: EthernetProtocol::Ipv6,
    }
    .emit(&mut frame);
    let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
    Ipv6Repr {
        src_addr: ip,
        dst_addr: ALL_NODES,
        next_header: IpProtocol::Icmpv6,
        payload_len: MESSAGE_LEN,
        hop_limit: HOP_LIMIT,
    }
    .emit(&mut packet);
    let mut flags = NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::ROUTER, router);
    let mut message = Icmpv6Packet::new_unchecked(packet.payload_mut());
    NdiscRepr::NeighborAdvert { flags, target_addr: ip, lladdr: Some(EthernetAddress(mac).into()) }
        .emit(&mut message);
    message.fill_checksum(&ip, &ALL_NODES);
    bytes
}

/// Parses the claim in a valid advertisement: its target, for the MAC in its target link-layer address
/// option or else the sender's.
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Ipv6 {
        return None;
    }
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let is_ndisc = packet.version() == 6
        && packet.next_header() == IpProtocol::Icmpv6
        && packet.hop_limit() == HOP_LIMIT;
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    if !is_ndisc
        || message.msg_type() != Icmpv6Message::NeighborAdvert
        || !message.verify_checksum(&packet.src_addr(), &packet.dst_addr())
    {
        return None;
    }
    let NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } = NdiscRepr::parse(&message).ok()?
    else {
        return None;
    };
    let mac = match lladdr {
        Some(lladdr) => lladdr.as_bytes().try_into().ok()?,
        None => frame.src_addr().0,
    };
    Some(Claim { mac, ip: target_addr.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn without_the_option_the_sender_counts() {
        let mut bytes = ADVERTISEMENT[..78].to_vec();
        bytes[19] = 0x18;
        let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
        let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
        Icmpv6Packet::new_unchecked(packet.payload_mut()).fill_checksum(&IP, &ALL_NODES);
        assert_eq!(parse_claim(&bytes), Some(Claim { mac: MAC, ip: IP.into() }));
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
}
