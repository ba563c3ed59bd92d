//! rtnetlink messages: what the kernel says of addresses and links, and how to ask for a dump.
//!
//! Formats are those of `include/uapi/linux/netlink.h`, `if_addr.h` and `if_link.h`, in the byte
//! order of the host. `netlink-packet-route` and `-core` give the headers and attributes; their
//! owned messages are not used, because they allocate.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_OVERRUN, NetlinkBuffer, NlaBuffer, NlasIterator,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressFlags, AddressHeader};
use netlink_packet_route::link::{LinkFlags, LinkHeader, LinkLayerType};
use nix::libc;

use super::cidr::Cidr;
use super::ifname::InterfaceName;

/// Length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Length of `struct ifaddrmsg`.
const ADDRESS_HEADER_LEN: usize = 8;
/// Length of `struct ifinfomsg`.
const LINK_HEADER_LEN: usize = 16;

/// Of a link: what the address families add (`include/uapi/linux/if_link.h`).
const IFLA_AF_SPEC: u16 = 26;
/// Of a request for links: what of them to tell (`RTEXT_FILTER_*`).
const IFLA_EXT_MASK: u16 = 29;
/// Of a link: how often its carrier has changed.
const IFLA_CARRIER_CHANGES: u16 = 35;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// An address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface; never 0.
    pub ifindex: u32,
    /// The interface's own address (`IFA_LOCAL`, or `IFA_ADDRESS` where there is no peer).
    pub cidr: Cidr,
    /// `IFA_ADDRESS`: the peer's address, or the same as `cidr`. IPv4 allows one local address
    /// several times on an interface, with different peers.
    pub peer: IpAddr,
    /// `IFA_FLAGS`.
    pub flags: AddressFlags,
    /// It has been changed since it was added: a lifetime was refreshed, for instance.
    pub refreshed: bool,
}

/// A link, which is what the kernel calls an interface. What a message does not mention is as it was: that of
/// a wireless event (`IFLA_WIRELESS`) has but the name and the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface; never 0.
    pub ifindex: u32,
    /// Its present name.
    pub name: Option<InterfaceName>,
    /// `IFF_*` flags.
    pub flags: LinkFlags,
    /// It is an Ethernet (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// Its address, if it is an Ethernet and the message mentions it.
    pub mac: Option<Mac>,
    /// How often its carrier has come or gone (`IFLA_CARRIER_CHANGES`), if the message mentions it.
    pub carrier_changes: Option<u32>,
    /// Whether it forwards IPv6, if the message mentions it.
    pub ipv6_forwarding: Option<bool>,
}

/// What one message says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Body {
    /// `RTM_NEWADDR`: an address was added or changed, or is part of a dump.
    NewAddress(Address),
    /// `RTM_DELADDR`.
    DelAddress(Address),
    /// `RTM_NEWLINK`: a link was added or changed, or is part of a dump.
    NewLink(Link),
    /// `RTM_DELLINK`.
    DelLink(Link),
    /// `RTM_NEWNETCONF`: an interface begins or ceases to forward IPv6.
    Ipv6Forwarding {
        /// Index of the interface.
        ifindex: u32,
        /// Whether it forwards.
        on: bool,
    },
    /// `NLMSG_DONE`: the end of a dump, with a positive errno where it failed. `NLMSG_ERROR` without an
    /// error: the end of the answer to another request.
    Done(Option<i32>),
    /// `NLMSG_ERROR`: the request failed with this positive errno.
    Error(i32),
    /// A message of no interest.
    Other,
}

/// A message with the parts of its header that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Message {
    /// The content.
    pub body: Body,
    /// Sequence number of the request that caused it, be it ours or not.
    pub sequence: u32,
    /// Port of the socket whose request caused it, be it ours or not; 0 if none.
    pub port: u32,
    /// `NLM_F_DUMP_INTR`: the kernel's tables changed while it dumped; ask again.
    pub interrupted: bool,
}

/// The bytes are not what the kernel sends, or say that some were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The messages of one datagram, in order. After an error it ends.
#[must_use]
#[derive(Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Reads a datagram as it was received.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    fn split_first(&mut self) -> Result<(NetlinkBuffer<&'a [u8]>, &'a [u8]), Malformed> {
        // Checked here and not by `new_checked`, whose error allocates.
        if self.0.len() < HEADER_LEN {
            return Err(Malformed);
        }
        let header = NetlinkBuffer::new(self.0);
        let length = usize::try_from(header.length()).map_err(|_| Malformed)?;
        let payload = self.0.get(HEADER_LEN..length).ok_or(Malformed)?;
        // NLMSG_ALIGN; the last message may lack its padding.
        let next = length.next_multiple_of(4).min(self.0.len());
        self.0 = self.0.get(next..).ok_or(Malformed)?;
        Ok((header, payload))
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Message, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = self.split_first().and_then(|(header, payload)| {
            Ok(Message {
                body: body(header.message_type(), payload)?,
                sequence: header.sequence_number(),
                port: header.port_number(),
                interrupted: header.flags() & NLM_F_DUMP_INTR != 0,
            })
        });
        if message.is_err() {
            self.0 = &[];
        }
        Some(message)
    }
}

fn body(kind: u16, payload: &[u8]) -> Result<Body, Malformed> {
    Ok(match kind {
        libc::RTM_NEWADDR => address(payload)?.map_or(Body::Other, Body::NewAddress),
        libc::RTM_DELADDR => address(payload)?.map_or(Body::Other, Body::DelAddress),
        libc::RTM_NEWLINK => link(payload)?.map_or(Body::Other, Body::NewLink),
        libc::RTM_DELLINK => link(payload)?.map_or(Body::Other, Body::DelLink),
        libc::RTM_NEWNETCONF => netconf(payload)?,
        // Kernels before 2.6.33 ended a dump without a result.
        NLMSG_DONE => Body::Done(errno(payload).ok().filter(|errno| *errno > 0)),
        NLMSG_ERROR => match errno(payload)? {
            0 => Body::Done(None),
            errno @ 1.. => Body::Error(errno),
            _ => return Err(Malformed),
        },
        NLMSG_OVERRUN => return Err(Malformed),
        _ => Body::Other,
    })
}

/// The kernel's negative errno, made positive.
fn errno(payload: &[u8]) -> Result<i32, Malformed> {
    let code = payload.first_chunk().ok_or(Malformed)?;
    Ok(i32::from_ne_bytes(*code).saturating_neg())
}

/// The attributes behind a header of fixed length.
fn attributes(
    payload: &[u8],
    header_len: usize,
) -> Result<impl Iterator<Item = Result<NlaBuffer<&[u8]>, Malformed>>, Malformed> {
    let attributes = payload.get(header_len..).ok_or(Malformed)?;
    Ok(NlasIterator::new(attributes).map(|attribute| attribute.map_err(|_| Malformed)))
}

/// Reads `struct ifaddrmsg` and its attributes. None: not an IP address.
fn address(payload: &[u8]) -> Result<Option<Address>, Malformed> {
    let attributes = attributes(payload, ADDRESS_HEADER_LEN)?;
    let header = AddressHeader::parse(payload).map_err(|_| Malformed)?;
    if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return Ok(None);
    }
    if header.index == 0 {
        return Err(Malformed);
    }
    // The header has room for eight flags only; IFA_FLAGS, where present, has them all.
    let mut flags = AddressFlags::from_bits_retain(header.flags.bits().into());
    let (mut own, mut peer, mut refreshed) = (None, None, false);
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind() {
            libc::IFA_LOCAL => own = Some(ip(attribute.value(), header.family)?),
            libc::IFA_ADDRESS => peer = Some(ip(attribute.value(), header.family)?),
            libc::IFA_FLAGS => flags = AddressFlags::from_bits_retain(word(attribute.value())?),
            libc::IFA_CACHEINFO => refreshed = is_refreshed(attribute.value())?,
            _ => {}
        }
    }
    let own = own.or(peer).ok_or(Malformed)?;
    Ok(Some(Address {
        ifindex: header.index,
        cidr: Cidr::new(own, header.prefix_len).map_err(|_| Malformed)?,
        peer: peer.unwrap_or(own),
        flags,
        refreshed,
    }))
}

/// Compares the times of creation and of the last change in `struct ifa_cacheinfo`, which are in
/// hundredths of a second.
fn is_refreshed(cacheinfo: &[u8]) -> Result<bool, Malformed> {
    let times = cacheinfo.get(8..).and_then(|times| times.first_chunk::<8>()).ok_or(Malformed)?;
    let (created, changed) = times.split_at(4);
    Ok(created != changed)
}

/// Reads `struct ifinfomsg` and its attributes. None: not about a link itself.
fn link(payload: &[u8]) -> Result<Option<Link>, Malformed> {
    let attributes = attributes(payload, LINK_HEADER_LEN)?;
    let header = LinkHeader::parse(payload).map_err(|_| Malformed)?;
    // A bridge tells of its ports with the same messages in family AF_BRIDGE: a DELLINK there
    // means that the port left the bridge, not that the link is gone.
    if header.interface_family != AddressFamily::Unspec {
        return Ok(None);
    }
    if header.index == 0 {
        return Err(Malformed);
    }
    let mut link = Link {
        ifindex: header.index,
        name: None,
        flags: header.flags,
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        mac: None,
        carrier_changes: None,
        ipv6_forwarding: None,
    };
    for attribute in attributes {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            libc::IFLA_IFNAME => {
                let name = value.strip_suffix(b"\0").unwrap_or(value);
                link.name = Some(InterfaceName::new(name).map_err(|_| Malformed)?);
            }
            libc::IFLA_ADDRESS if link.ethernet => {
                link.mac = value.try_into().ok();
            }
            IFLA_CARRIER_CHANGES => link.carrier_changes = Some(word(value)?),
            IFLA_AF_SPEC => link.ipv6_forwarding = ipv6_forwarding(value),
            _ => {}
        }
    }
    Ok(Some(link))
}

/// Digs out of `IFLA_AF_SPEC`, for `AF_INET6`, of the array `IFLA_INET6_CONF`, whether it forwards.
fn ipv6_forwarding(af_spec: &[u8]) -> Option<bool> {
    /// `IFLA_INET6_CONF` (`include/uapi/linux/if_link.h`).
    const CONF: u16 = 2;
    let inet6 = find(af_spec, u8::from(AddressFamily::Inet6).into())?;
    // DEVCONF_FORWARDING is the first (`include/uapi/linux/ipv6.h`).
    let forwarding = find(inet6, CONF)?.first_chunk::<4>()?;
    Some(*forwarding != [0; 4])
}

/// Reads `struct netconfmsg`, which is padded to four bytes, and its attributes.
fn netconf(payload: &[u8]) -> Result<Body, Malformed> {
    /// `NETCONFA_IFINDEX` and `NETCONFA_FORWARDING` (`include/uapi/linux/netconf.h`).
    const IFINDEX: u16 = 1;
    const FORWARDING: u16 = 2;
    let (family, attributes) = payload.split_first_chunk::<4>().ok_or(Malformed)?;
    let is_ipv6 = family[0] == u8::from(AddressFamily::Inet6);
    let value = |kind| find(attributes, kind).map(word).transpose();
    match (value(IFINDEX)?, value(FORWARDING)?) {
        (Some(ifindex), Some(on)) if is_ipv6 => Ok(Body::Ipv6Forwarding { ifindex, on: on != 0 }),
        _ => Ok(Body::Other),
    }
}

/// The value of the first attribute of a kind.
fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let found = NlasIterator::new(attributes).flatten().find(|found| found.kind() == kind)?;
    let end = usize::from(found.length());
    found.into_inner().get(4..end)
}

fn word(value: &[u8]) -> Result<u32, Malformed> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Malformed)
}

fn ip(value: &[u8], family: AddressFamily) -> Result<IpAddr, Malformed> {
    match family {
        AddressFamily::Inet => <[u8; 4]>::try_from(value).map(|v| Ipv4Addr::from(v).into()),
        _ => <[u8; 16]>::try_from(value).map(|v| Ipv6Addr::from(v).into()),
    }
    .map_err(|_| Malformed)
}

/// A request to dump all links, without their statistics.
///
/// Were it not said what to leave out, the kernel would not look how much room the longest takes
/// (`rtnl_calcit`). Where one took more than 32 kB, the dump would then end before it, as if complete.
pub fn request_links(sequence: u32) -> [u8; 40] {
    const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    request(libc::RTM_GETLINK, NLM_F_DUMP, sequence, |payload| {
        emit_of_link(payload, IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    })
}

/// A request for the link that has this name, be it but an alternative one, whose answer ends with an
/// acknowledgement.
pub fn request_link(sequence: u32, name: &InterfaceName) -> [u8; 52] {
    request(libc::RTM_GETLINK, NLM_F_ACK, sequence, |payload| {
        emit_of_link(payload, libc::IFLA_IFNAME, name.padded());
    })
}

/// Writes one attribute, which fills what `struct ifinfomsg` leaves. That may stay empty.
fn emit_of_link(payload: &mut [u8], kind: u16, value: &[u8]) {
    let (_, attribute) = payload.split_at_mut(LINK_HEADER_LEN);
    let length = u16::try_from(attribute.len()).unwrap_or_default();
    if let Some((header, place)) = attribute.split_first_chunk_mut() {
        *header = pair(length, kind);
        place.copy_from_slice(value);
    }
}

/// Two numbers, one after the other.
fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}

/// A request to dump the addresses of one interface, or with index 0 of all.
///
/// The kernel heeds the index only on a socket with `NETLINK_GET_STRICT_CHK`; others get all.
pub fn request_addresses(sequence: u32, ifindex: u32) -> [u8; 24] {
    request(libc::RTM_GETADDR, NLM_F_DUMP, sequence, |payload| {
        AddressHeader { index: ifindex, ..AddressHeader::default() }.emit(payload);
    })
}

fn request<const LEN: usize>(
    kind: u16,
    flags: u16,
    sequence: u32,
    emit: impl FnOnce(&mut [u8]),
) -> [u8; LEN] {
    const { assert!(HEADER_LEN <= LEN && LEN <= 64) };
    let mut bytes = [0; LEN];
    emit_header(&mut bytes, kind, flags, sequence);
    emit(bytes.split_at_mut(HEADER_LEN).1);
    bytes
}

// Once in the program, and not for every length.
#[inline(never)]
fn emit_header(message: &mut [u8], kind: u16, flags: u16, sequence: u32) {
    let length = u32::try_from(message.len()).unwrap_or_default().to_ne_bytes();
    if let Some((header, _)) = message.split_first_chunk_mut::<HEADER_LEN>() {
        let fields = [length, pair(kind, NLM_F_REQUEST | flags), sequence.to_ne_bytes(), [0; 4]];
        header.copy_from_slice(fields.as_flattened());
    }
}

#[cfg(test)]
mod tests;
