//! Unsolicited neighbour advertisements, the IPv6 counterpart of gratuitous ARP (RFC 4861 section 7.2.6).

use core::net::Ipv6Addr;

use smoltcp::wire::{
    ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IPV6_HEADER_LEN, IPV6_LINK_LOCAL_ALL_NODES as ALL_NODES, Icmpv6Packet, IpProtocol, Ipv6Packet,
    Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
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
    let lladdr = Some(EthernetAddress(mac).into());
    NdiscRepr::NeighborAdvert { flags, target_addr: ip, lladdr }.emit(&mut message);
    message.fill_checksum(&ip, &ALL_NODES);
    bytes
}

/// Parses the claim in a valid advertisement: its target, for the MAC in its target link-layer address
/// option or else the sender's.
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let is_valid = frame.ethertype() == EthernetProtocol::Ipv6
        && packet.version() == 6
        && packet.next_header() == IpProtocol::Icmpv6
        && packet.hop_limit() == HOP_LIMIT
        && message.verify_checksum(&packet.src_addr(), &packet.dst_addr());
    let Ok(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }) = NdiscRepr::parse(&message)
    else {
        return None;
    };
    let mac = match lladdr {
        Some(stated) => stated.as_bytes().try_into().ok()?,
        None => frame.src_addr().0,
    };
    is_valid.then_some(Claim { mac, ip: target_addr.into() })
}
