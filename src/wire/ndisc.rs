//! Unsolicited neighbour advertisements and solicitations, the IPv6 counterpart of gratuitous ARP and probes (RFC 4861
//! section 7.2.6, RFC 4862 section 5.4.2).

use core::net::Ipv6Addr;

use smoltcp::wire::{
    ETHERNET_HEADER_LEN, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IPV6_HEADER_LEN, IPV6_LINK_LOCAL_ALL_NODES as ALL_NODES, Icmpv6Packet, IpProtocol, Ipv6Packet,
    Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};

use super::rtnl::Mac;
use super::{Claim, ClaimKind};

/// Length of an Ethernet frame with a solicitation without an option.
pub const PROBE_LEN: usize = ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + 24;
/// Length of an Ethernet frame with a solicitation or advertisement and an option of 8 bytes, a MAC.
pub const FRAME_LEN: usize = PROBE_LEN + 8;

/// Shows that a packet has crossed no router (RFC 4861 section 7.1.2).
const HOP_LIMIT: u8 = 255;

/// The flow label (RFC 6437) of our probes, by which one that the network sends back differs from those of hosts. It
/// is "kw" in ASCII.
pub const PROBE_LABEL: u32 = 0x6b77;

/// Returns a multicast in which `mac` claims `ip`, and which overrides the neighbours' caches. `router` is whether the
/// interface forwards: hosts remove a default router that does not.
pub fn advertisement(mac: Mac, ip: Ipv6Addr, router: bool) -> [u8; FRAME_LEN] {
    let mut flags = NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::ROUTER, router);
    let lladdr = Some(EthernetAddress(mac).into());
    multicast(mac, ip, ALL_NODES, NdiscRepr::NeighborAdvert { flags, target_addr: ip, lladdr })
}

/// Returns a multicast in which `mac` asks who has `ip`. The answer goes to `from` alone (RFC 4861 section 7.2.4).
pub fn probe_from(mac: Mac, from: Ipv6Addr, ip: Ipv6Addr) -> [u8; FRAME_LEN] {
    let repr =
        NdiscRepr::NeighborSolicit { target_addr: ip, lladdr: Some(EthernetAddress(mac).into()) };
    multicast(mac, from, solicited_node(ip), repr)
}

/// Returns a multicast in which `mac` asks who has `ip`, as in duplicate address detection: the answer goes to all
/// nodes, and overrides their caches.
pub fn probe(mac: Mac, ip: Ipv6Addr) -> [u8; PROBE_LEN] {
    let repr = NdiscRepr::NeighborSolicit { target_addr: ip, lladdr: None };
    multicast(mac, Ipv6Addr::UNSPECIFIED, solicited_node(ip), repr)
}

/// Returns the multicast group of the hosts with addresses that end like `ip` (RFC 4291 section 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., s0, s1, s2] = ip.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, s0, s1, s2])
}

fn multicast<const LEN: usize>(
    mac: Mac,
    source: Ipv6Addr,
    group: Ipv6Addr,
    repr: NdiscRepr<'_>,
) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    // RFC 2464 section 7.
    let [.., g0, g1, g2, g3] = group.octets();
    EthernetRepr {
        src_addr: EthernetAddress(mac),
        dst_addr: EthernetAddress([0x33, 0x33, g0, g1, g2, g3]),
        ethertype: EthernetProtocol::Ipv6,
    }
    .emit(&mut frame);
    let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
    Ipv6Repr {
        src_addr: source,
        dst_addr: group,
        next_header: IpProtocol::Icmpv6,
        payload_len: repr.buffer_len(),
        hop_limit: HOP_LIMIT,
    }
    .emit(&mut packet);
    if let NdiscRepr::NeighborSolicit { .. } = repr {
        packet.set_flow_label(PROBE_LABEL);
    }
    let mut message = Icmpv6Packet::new_unchecked(packet.payload_mut());
    repr.emit(&mut message);
    message.fill_checksum(&source, &group);
    bytes
}

/// Parses the claim in a valid advertisement: its target, for the MAC in its target link-layer address
/// option or else the sender's. A solicited one is an answer. A probe of keepwatch claims nothing, nor does an
/// advertisement of a proxy, which yields to that of the host with the address (RFC 4861 section 7.2.8).
pub fn parse_claim(frame: &[u8]) -> Option<Claim> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let is_valid = frame.ethertype() == EthernetProtocol::Ipv6
        && packet.version() == 6
        && packet.next_header() == IpProtocol::Icmpv6
        && packet.hop_limit() == HOP_LIMIT
        && message.verify_checksum(&packet.src_addr(), &packet.dst_addr());
    let (mac, ip, kind) = match NdiscRepr::parse(&message).ok()? {
        NdiscRepr::NeighborAdvert { flags, target_addr, lladdr }
            if flags.contains(NdiscNeighborFlags::OVERRIDE) =>
        {
            let is_answer = flags.contains(NdiscNeighborFlags::SOLICITED);
            let mac = match lladdr {
                Some(stated) => stated.as_bytes().try_into().ok()?,
                None => frame.src_addr().0,
            };
            let kind = if is_answer { ClaimKind::Answer } else { ClaimKind::Unsolicited };
            (mac, target_addr, kind)
        }
        NdiscRepr::NeighborSolicit { target_addr, .. } if packet.flow_label() == PROBE_LABEL => {
            (frame.src_addr().0, target_addr, ClaimKind::Probe)
        }
        _ => return None,
    };
    is_valid.then_some(Claim { mac, ip: ip.into(), kind })
}
