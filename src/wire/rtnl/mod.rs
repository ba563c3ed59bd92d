//! rtnetlink: messages about addresses and links, and dump requests.
//!
//! Formats are those of `include/uapi/linux/netlink.h`, `if_addr.h` and `if_link.h`, in host byte order.
//! `netlink-packet-route` and `-core` parse headers and attributes; their owned messages are not used,
//! because they allocate.

mod uapi;

use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NlasIterator,
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
    /// several times on an interface, with different peers, of which 0.0.0.0 is one.
    pub peer: IpAddr,
    /// `IFA_FLAGS`.
    pub flags: AddressFlags,
    /// When it was added, in hundredths of a second since the boot. That begins anew after 497 days, on 32 bits after two to
    /// five (`cstamp_delta` in `net/ipv4/devinet.c`).
    pub created: u32,
    /// It was changed after it was added, for instance by a refreshed lifetime.
    pub refreshed: bool,
}

/// A link, as the kernel calls an interface. A field that is `None` is not in the message and has not changed, unless
/// its own comment says otherwise: a wireless event (`IFLA_WIRELESS`) has only the name and the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface; never 0.
    pub ifindex: u32,
    /// Its current name.
    pub name: Option<InterfaceName>,
    /// `IFF_*` flags.
    pub flags: LinkFlags,
    /// It is an Ethernet (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// Its address, if it is an Ethernet.
    pub mac: Option<Mac>,
    /// Index of the link below it (`IFLA_LINK`). None: also a link in another namespace.
    pub parent: Option<u32>,
    /// The number of carrier changes (`IFLA_CARRIER_CHANGES`).
    pub carrier_changes: Option<u32>,
    /// Whether it forwards IPv6.
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
    /// The end of an answer, with a positive errno if the request failed: `NLMSG_DONE` after a dump, or `NLMSG_ERROR`, which
    /// without an error is an acknowledgement.
    Done(Option<i32>),
    /// A message of no interest.
    Other,
}

/// A message with the relevant parts of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The content.
    pub body: Body,
    /// Sequence number of the request that caused it, by any process.
    pub sequence: u32,
    /// `NLM_F_DUMP_INTR`: the kernel's tables changed during the dump, which has to be repeated.
    pub interrupted: bool,
}

/// An invalid message, or one that reports lost messages (`NLMSG_OVERRUN`). It has the interface index of the message, if
/// that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub Option<u32>);

/// The messages of a datagram. The iterator ends after an error that hides where the next message begins.
#[must_use]
#[derive(Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Reads a datagram.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    fn parse_first(&mut self) -> Result<Message, Malformed> {
        let datagram = core::mem::take(&mut self.0);
        // Checked here and not by `new_checked`, whose error allocates.
        if datagram.len() < HEADER_LEN {
            return Err(Malformed(None));
        }
        let header = NetlinkBuffer::new(datagram);
        let length = usize::try_from(header.length()).map_err(|_| Malformed(None))?;
        let payload = datagram.get(HEADER_LEN..length).ok_or(Malformed(None))?;
        // NLMSG_ALIGN; the last message may lack its padding.
        self.0 = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = header.message_type();
        Ok(Message {
            body: parse_body(kind, payload).ok_or_else(|| Malformed(ifindex(kind, payload)))?,
            sequence: header.sequence_number(),
            interrupted: header.flags() & NLM_F_DUMP_INTR != 0,
        })
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Message, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() { None } else { Some(self.parse_first()) }
    }
}

/// Returns the interface index of a message about an address or a link, which `struct ifaddrmsg` and `struct ifinfomsg`
/// have in the same place.
fn ifindex(kind: u16, payload: &[u8]) -> Option<u32> {
    let has_one = (uapi::RTM_NEWLINK..=uapi::RTM_DELADDR).contains(&kind);
    let bytes = payload.get(4..8).filter(|_| has_one)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes)).filter(|ifindex| *ifindex != 0)
}

/// Parses a body. `None`: it is malformed. Only the fields in use are checked.
fn parse_body(kind: u16, payload: &[u8]) -> Option<Body> {
    Some(match kind {
        uapi::RTM_NEWADDR => parse_address(payload, Body::NewAddress)?,
        uapi::RTM_DELADDR => parse_address(payload, Body::DelAddress)?,
        uapi::RTM_NEWLINK => parse_link(payload, Body::NewLink)?,
        uapi::RTM_DELLINK => parse_link(payload, Body::DelLink)?,
        uapi::RTM_NEWNETCONF => parse_netconf(payload),
        // Kernels before 2.6.33 ended a dump without a result.
        NLMSG_DONE => Body::Done(read_errno(payload).filter(|errno| *errno > 0)),
        NLMSG_ERROR => match read_errno(payload)? {
            errno @ 0.. => Body::Done((errno > 0).then_some(errno)),
            _ => return None,
        },
        NLMSG_OVERRUN => return None,
        _ => Body::Other,
    })
}

/// Reads the kernel's negative errno and returns it as a positive one.
fn read_errno(payload: &[u8]) -> Option<i32> {
    payload.first_chunk().map(|code| i32::from_ne_bytes(*code).saturating_neg())
}

/// How much later than it was added a new IPv6 address may have been updated, in hundredths of a second. Router
/// advertisements update one whose duplicate address detection goes on, of which no event came before. A temporary address
/// begins with the time of the one that it was made from (`net/ipv6/addrconf.c`), which the last advertisement updated.
const NEW: RangeInclusive<i32> = -200_000..=500;

/// Parses `struct ifaddrmsg` and its attributes.
fn parse_address(payload: &[u8], body: fn(Address) -> Body) -> Option<Body> {
    let attributes = payload.get(ADDRESS_HEADER_LEN..)?;
    let header = AddressHeader::parse(payload).ok()?;
    if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return Some(Body::Other);
    }
    if header.index == 0 {
        return None;
    }
    let (mut own, mut peer, mut flags, mut times) = (None, None, None, [0; 2]);
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        match attribute.kind() {
            uapi::IFA_LOCAL => own = Some(read_ip(attribute.value(), header.family)?),
            uapi::IFA_ADDRESS => peer = Some(read_ip(attribute.value(), header.family)?),
            uapi::IFA_FLAGS => flags = read_u32(attribute.value()),
            uapi::IFA_CACHEINFO => times = read_times(attribute.value()),
            _ => {}
        }
    }
    let own = own.or(peer)?;
    let [created, updated] = times;
    let later = updated.wrapping_sub(created).cast_signed();
    let (no_peer, refreshed) = match own {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), later != 0),
        IpAddr::V6(_) => (own, !NEW.contains(&later)),
    };
    Some(body(Address {
        ifindex: header.index,
        cidr: Cidr::new(own, header.prefix_len)?,
        peer: peer.unwrap_or(no_peer),
        // The header holds the lower eight only.
        flags: AddressFlags::from_bits_retain(flags.unwrap_or(header.flags.bits().into())),
        created,
        refreshed,
    }))
}

/// Reads the times of creation and of the last update in `struct ifa_cacheinfo`.
fn read_times(cacheinfo: &[u8]) -> [u32; 2] {
    match cacheinfo.as_chunks::<4>().0 {
        [_preferred, _valid, created, updated, ..] => [*created, *updated].map(u32::from_ne_bytes),
        _ => [0; 2],
    }
}

/// Parses `struct ifinfomsg` and its attributes.
fn parse_link(payload: &[u8], body: fn(Link) -> Body) -> Option<Body> {
    let attributes = payload.get(LINK_HEADER_LEN..)?;
    let header = LinkHeader::parse(payload).ok()?;
    // In family AF_BRIDGE, RTM_DELLINK means that a port left its bridge, not that the link is gone.
    if header.interface_family != AddressFamily::Unspec {
        return Some(Body::Other);
    }
    if header.index == 0 {
        return None;
    }
    let mut link = Link {
        ifindex: header.index,
        flags: header.flags,
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        ..Link::default()
    };
    let mut is_parent_elsewhere = false;
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        let value = attribute.value();
        match attribute.kind() {
            uapi::IFLA_IFNAME => {
                let name = value.strip_suffix(b"\0").unwrap_or(value);
                link.name = Some(InterfaceName::new(name)?);
            }
            uapi::IFLA_ADDRESS if link.ethernet => link.mac = value.try_into().ok(),
            uapi::IFLA_LINK => link.parent = read_u32(value),
            uapi::IFLA_LINK_NETNSID => is_parent_elsewhere = true,
            uapi::IFLA_CARRIER_CHANGES => link.carrier_changes = read_u32(value),
            uapi::IFLA_AF_SPEC => link.ipv6_forwarding = read_ipv6_forwarding(value),
            _ => {}
        }
    }
    link.parent.take_if(|_| is_parent_elsewhere);
    Some(body(link))
}

/// Reads the forwarding setting in `IFLA_AF_SPEC` for `AF_INET6`.
fn read_ipv6_forwarding(af_spec: &[u8]) -> Option<bool> {
    let inet6 = find_attr(af_spec, u8::from(AddressFamily::Inet6).into())?;
    let forwarding = find_attr(inet6, uapi::IFLA_INET6_CONF)?.first_chunk::<4>()?;
    Some(*forwarding != [0; 4])
}

/// Parses `struct netconfmsg`, padded to four bytes, and its attributes.
fn parse_netconf(payload: &[u8]) -> Body {
    let Some((family, attributes)) = payload.split_first_chunk::<4>() else { return Body::Other };
    let is_ipv6 = family[0] == u8::from(AddressFamily::Inet6);
    let value = |kind| find_attr(attributes, kind).and_then(read_u32);
    match (value(uapi::NETCONFA_IFINDEX), value(uapi::NETCONFA_FORWARDING)) {
        (Some(ifindex), Some(on)) if is_ipv6 => Body::Ipv6Forwarding { ifindex, on: on != 0 },
        _ => Body::Other,
    }
}

/// Returns the value of the first attribute of this kind.
fn find_attr(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let found = NlasIterator::new(attributes).flatten().find(|found| found.kind() == kind)?;
    let end = usize::from(found.length());
    found.into_inner().get(4..end)
}

fn read_u32(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

fn read_ip(value: &[u8], family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
    }
}

/// Returns a request to dump all links, without their statistics.
///
/// Only with `IFLA_EXT_MASK` does the kernel size its buffer by the longest link (`rtnl_calcit`,
/// `net/core/rtnetlink.c`). Without it, a dump ends before a link of more than 32 kB, as if complete.
pub fn request_links(sequence: u32) -> [u8; 40] {
    let mask = uapi::RTEXT_FILTER_SKIP_STATS.to_ne_bytes();
    let payload = [&ANY_LINK[..], &nla_header(uapi::IFLA_EXT_MASK, 4), &mask];
    encode_request(uapi::RTM_GETLINK, NLM_F_DUMP, sequence, &payload)
}

/// Returns a request for the link with this index. Its reply ends with an acknowledgement.
pub fn request_link(sequence: u32, ifindex: u32) -> [u8; 32] {
    // `ifi_index` of `struct ifinfomsg`.
    let payload = [&[0; 4], &ifindex.to_ne_bytes()[..], &[0; 8]];
    encode_request(uapi::RTM_GETLINK, NLM_F_ACK, sequence, &payload)
}

/// Returns a request for the link with this name or alternative name. Its reply ends with an acknowledgement.
pub fn request_link_named(sequence: u32, name: &InterfaceName) -> [u8; 52] {
    let payload = [&ANY_LINK[..], &nla_header(uapi::IFLA_IFNAME, 16), name.padded()];
    encode_request(uapi::RTM_GETLINK, NLM_F_ACK, sequence, &payload)
}

/// Returns a request to dump the addresses of a family of one interface, or of all with index 0.
///
/// The kernel ignores the index on a socket without `NETLINK_GET_STRICT_CHK`.
pub fn request_addresses(sequence: u32, family: AddressFamily, ifindex: u32) -> [u8; 24] {
    // struct ifaddrmsg
    let payload = [&[family.into(), 0, 0, 0], &ifindex.to_ne_bytes()[..]];
    encode_request(uapi::RTM_GETADDR, NLM_F_DUMP, sequence, &payload)
}

/// A zeroed `struct ifinfomsg`.
const ANY_LINK: [u8; LINK_HEADER_LEN] = [0; LINK_HEADER_LEN];

/// Returns the `struct nlattr` of an attribute whose value has this length.
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
