//! rtnetlink: messages about addresses and links, and dump requests.
//!
//! Formats are those of `include/uapi/linux/netlink.h`, `if_addr.h` and `if_link.h`, in host byte order.
//! `netlink-packet-route` and `-core` parse headers and attributes; their owned messages are not used,
//! because they allocate.

mod uapi;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NlaBuffer, NlasIterator,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressFlags, AddressHeader};
use netlink_packet_route::link::{LinkFlags, LinkHeader, LinkLayerType};

use super::cidr::Cidr;
use super::ifname::InterfaceName;

/// Length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Length of `struct ifaddrmsg`.
const ADDRESS_HEADER_LEN: usize = 8;
/// Length of `struct ifinfomsg`.
const LINK_HEADER_LEN: usize = 16;

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

/// A link, as the kernel calls an interface. A field that is `None` is not in the message and has not changed: a
/// wireless event (`IFLA_WIRELESS`) has no more than the name and the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface; never 0.
    pub ifindex: u32,
    /// Its current name.
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

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `RTM_NEWADDR`: an address was added or changed, or is part of a dump.
    NewAddress(Address),
    /// `RTM_DELADDR`.
    DelAddress(Address),
    /// `RTM_NEWLINK`: a link was added or changed, or is part of a dump.
    NewLink(Link),
    /// `RTM_DELLINK`.
    DelLink(Link),
    /// `RTM_NEWNETCONF`: an interface starts or stops forwarding IPv6.
    Ipv6Forwarding {
        /// Index of the interface.
        ifindex: u32,
        /// Whether it forwards.
        on: bool,
    },
    /// `NLMSG_DONE`: the end of a dump, with a positive errno if it failed. `NLMSG_ERROR` without an
    /// error: an acknowledgement, which ends the reply to another request.
    Done(Option<i32>),
    /// `NLMSG_ERROR`: the request failed with this positive errno.
    Error(i32),
    /// A message of no interest.
    Other,
}

/// A message with the parts of its header that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The content.
    pub body: Body,
    /// Sequence number of the request that caused it, whether ours or not.
    pub sequence: u32,
    /// Port of the socket whose request caused it, whether ours or not; 0 if none.
    pub port: u32,
    /// `NLM_F_DUMP_INTR`: the kernel's tables changed while it dumped; ask again.
    pub interrupted: bool,
}

/// The bytes are no valid message, or say that messages were lost (`NLMSG_OVERRUN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Iterates over the messages of a datagram. Ends after an error.
#[must_use]
#[derive(Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Reads a datagram as it was received.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    fn parse_first(&mut self) -> Result<Message, Malformed> {
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
        Ok(Message {
            body: parse_body(header.message_type(), payload)?,
            sequence: header.sequence_number(),
            port: header.port_number(),
            interrupted: header.flags() & NLM_F_DUMP_INTR != 0,
        })
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Message, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = self.parse_first();
        if message.is_err() {
            self.0 = &[];
        }
        Some(message)
    }
}

fn parse_body(kind: u16, payload: &[u8]) -> Result<Body, Malformed> {
    Ok(match kind {
        uapi::RTM_NEWADDR => parse_address(payload)?.map_or(Body::Other, Body::NewAddress),
        uapi::RTM_DELADDR => parse_address(payload)?.map_or(Body::Other, Body::DelAddress),
        uapi::RTM_NEWLINK => parse_link(payload)?.map_or(Body::Other, Body::NewLink),
        uapi::RTM_DELLINK => parse_link(payload)?.map_or(Body::Other, Body::DelLink),
        uapi::RTM_NEWNETCONF => parse_netconf(payload)?,
        // Kernels before 2.6.33 ended a dump without a result.
        NLMSG_DONE => Body::Done(read_errno(payload).ok().filter(|errno| *errno > 0)),
        NLMSG_ERROR => match read_errno(payload)? {
            0 => Body::Done(None),
            errno @ 1.. => Body::Error(errno),
            _ => return Err(Malformed),
        },
        NLMSG_OVERRUN => return Err(Malformed),
        _ => Body::Other,
    })
}

/// The kernel's negative errno, made positive.
fn read_errno(payload: &[u8]) -> Result<i32, Malformed> {
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

/// Parses `struct ifaddrmsg` and its attributes. `None`: not an IP address.
fn parse_address(payload: &[u8]) -> Result<Option<Address>, Malformed> {
    let attributes = attributes(payload, ADDRESS_HEADER_LEN)?;
    let header = AddressHeader::parse(payload).map_err(|_| Malformed)?;
    if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return Ok(None);
    }
    if header.index == 0 {
        return Err(Malformed);
    }
    // The header holds the lower eight flags only; IFA_FLAGS, if present, holds them all.
    let mut flags = AddressFlags::from_bits_retain(header.flags.bits().into());
    let (mut own, mut peer, mut refreshed) = (None, None, false);
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind() {
            uapi::IFA_LOCAL => own = Some(read_ip(attribute.value(), header.family)?),
            uapi::IFA_ADDRESS => peer = Some(read_ip(attribute.value(), header.family)?),
            uapi::IFA_FLAGS => flags = AddressFlags::from_bits_retain(read_u32(attribute.value())?),
            uapi::IFA_CACHEINFO => refreshed = read_refreshed(attribute.value())?,
            _ => {}
        }
    }
    let own = own.or(peer).ok_or(Malformed)?;
    Ok(Some(Address {
        ifindex: header.index,
        cidr: Cidr::new(own, header.prefix_len).ok_or(Malformed)?,
        peer: peer.unwrap_or(own),
        flags,
        refreshed,
    }))
}

/// Whether the times of creation and of the last update in `struct ifa_cacheinfo` differ.
fn read_refreshed(cacheinfo: &[u8]) -> Result<bool, Malformed> {
    match cacheinfo.as_chunks::<4>().0 {
        [_preferred, _valid, created, updated, ..] => Ok(created != updated),
        _ => Err(Malformed),
    }
}

/// Parses `struct ifinfomsg` and its attributes. `None`: not about a link itself.
fn parse_link(payload: &[u8]) -> Result<Option<Link>, Malformed> {
    let attributes = attributes(payload, LINK_HEADER_LEN)?;
    let header = LinkHeader::parse(payload).map_err(|_| Malformed)?;
    // In family AF_BRIDGE, RTM_DELLINK means that a port left its bridge, not that the link is gone.
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
            uapi::IFLA_IFNAME => {
                let name = value.strip_suffix(b"\0").unwrap_or(value);
                link.name = Some(InterfaceName::new(name).ok_or(Malformed)?);
            }
            uapi::IFLA_ADDRESS if link.ethernet => {
                link.mac = value.try_into().ok();
            }
            uapi::IFLA_CARRIER_CHANGES => link.carrier_changes = Some(read_u32(value)?),
            uapi::IFLA_AF_SPEC => link.ipv6_forwarding = read_ipv6_forwarding(value),
            _ => {}
        }
    }
    Ok(Some(link))
}

/// Reads the forwarding setting in `IFLA_AF_SPEC` for `AF_INET6`.
fn read_ipv6_forwarding(af_spec: &[u8]) -> Option<bool> {
    let inet6 = find_attr(af_spec, u8::from(AddressFamily::Inet6).into())?;
    let forwarding = find_attr(inet6, uapi::IFLA_INET6_CONF)?.first_chunk::<4>()?;
    Some(*forwarding != [0; 4])
}

/// Parses `struct netconfmsg`, padded to four bytes, and its attributes.
fn parse_netconf(payload: &[u8]) -> Result<Body, Malformed> {
    let (family, attributes) = payload.split_first_chunk::<4>().ok_or(Malformed)?;
    let is_ipv6 = family[0] == u8::from(AddressFamily::Inet6);
    let value = |kind| find_attr(attributes, kind).map(read_u32).transpose();
    match (value(uapi::NETCONFA_IFINDEX)?, value(uapi::NETCONFA_FORWARDING)?) {
        (Some(ifindex), Some(on)) if is_ipv6 => Ok(Body::Ipv6Forwarding { ifindex, on: on != 0 }),
        _ => Ok(Body::Other),
    }
}

/// The value of the first attribute of this kind.
fn find_attr(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let found = NlasIterator::new(attributes).flatten().find(|found| found.kind() == kind)?;
    let end = usize::from(found.length());
    found.into_inner().get(4..end)
}

fn read_u32(value: &[u8]) -> Result<u32, Malformed> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Malformed)
}

fn read_ip(value: &[u8], family: AddressFamily) -> Result<IpAddr, Malformed> {
    match family {
        AddressFamily::Inet => <[u8; 4]>::try_from(value).map(|v| Ipv4Addr::from(v).into()),
        _ => <[u8; 16]>::try_from(value).map(|v| Ipv6Addr::from(v).into()),
    }
    .map_err(|_| Malformed)
}

/// A request to dump all links, without their statistics.
///
/// Only with `IFLA_EXT_MASK` does the kernel size its buffer by the longest link (`rtnl_calcit`,
/// `net/core/rtnetlink.c`). Without it, a dump ends before a link of more than 32 kB, as if complete.
pub fn request_links(sequence: u32) -> [u8; 40] {
    let mask = uapi::RTEXT_FILTER_SKIP_STATS.to_ne_bytes();
    let payload = [&ANY_LINK[..], &nla_header(uapi::IFLA_EXT_MASK, 4), &mask];
    encode_request(uapi::RTM_GETLINK, NLM_F_DUMP, sequence, &payload)
}

/// A request for the link with this name or alternative name. Its reply ends with an acknowledgement.
pub fn request_link(sequence: u32, name: &InterfaceName) -> [u8; 52] {
    let payload = [&ANY_LINK[..], &nla_header(uapi::IFLA_IFNAME, 16), name.padded()];
    encode_request(uapi::RTM_GETLINK, NLM_F_ACK, sequence, &payload)
}

/// A request to dump the addresses of one interface, or of all with index 0.
///
/// The kernel ignores the index on a socket without `NETLINK_GET_STRICT_CHK`.
pub fn request_addresses(sequence: u32, ifindex: u32) -> [u8; 24] {
    // struct ifaddrmsg
    let payload = [&[0; 4], &ifindex.to_ne_bytes()[..]];
    encode_request(uapi::RTM_GETADDR, NLM_F_DUMP, sequence, &payload)
}

/// A zeroed `struct ifinfomsg`.
const ANY_LINK: [u8; LINK_HEADER_LEN] = [0; LINK_HEADER_LEN];

/// `struct nlattr` of an attribute whose value has this length.
fn nla_header(kind: u16, value_len: u16) -> [u8; 4] {
    let [length, kind] = [4 + value_len, kind].map(u16::to_ne_bytes);
    [length[0], length[1], kind[0], kind[1]]
}

fn encode_request<const LEN: usize>(
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &[&[u8]],
) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(LEN).unwrap_or_default();
    header.message_type = kind;
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    header.emit(&mut bytes);
    let payload = payload.iter().copied().flatten();
    bytes.iter_mut().skip(HEADER_LEN).zip(payload).for_each(|(to, from)| *to = *from);
    bytes
}
