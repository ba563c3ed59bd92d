//! Changes links and addresses of the current network namespace over rtnetlink.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, Prop,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

use crate::files::look;
use crate::namespace::Netns;

/// A socket for requests, in the namespace in which it was created.
#[derive(Debug)]
pub struct Rtnl(Socket);

impl Rtnl {
    pub fn new() -> Self {
        let mut socket = Socket::new(NETLINK_ROUTE).expect("a netlink socket");
        socket.bind_auto().expect("a netlink port");
        Self(socket)
    }

    /// Returns the port of the socket.
    pub fn port(&self) -> u32 {
        let mut address = SocketAddr::new(0, 0);
        self.0.get_address(&mut address).expect("the socket's address");
        address.port_number()
    }

    /// Sends raw bytes to another port. An error if that has no room.
    pub fn send_raw(&self, bytes: &[u8], port: u32) -> io::Result<usize> {
        self.0.send_to(bytes, &SocketAddr::new(port, 0), nix::libc::MSG_DONTWAIT)
    }

    /// Sends another port what the kernel sends when an interface has a new address (`RTM_NEWADDR`).
    pub fn forge_address(&self, interface: &str, address: [u8; 4], prefix_len: u8, port: u32) {
        let message = [
            &32_u32.to_ne_bytes()[..],
            &20_u16.to_ne_bytes(),
            &[0; 10],
            &[2, prefix_len, 0, 0],
            &self.ifindex(interface).to_ne_bytes(),
            &8_u16.to_ne_bytes(),
            &2_u16.to_ne_bytes(),
            &address,
        ];
        self.send_raw(&message.concat(), port).expect("to send to the port");
    }

    /// Creates a pair of Ethernet interfaces, both down.
    pub fn add_veth(&self, name: &str, peer: &str) {
        self.add_veth_at(0, name, peer);
    }

    /// Creates such a pair, the first interface with this index, or with any if 0.
    pub fn add_veth_at(&self, index: u32, name: &str, peer: &str) {
        let mut other = LinkMessage::default();
        other.attributes.push(LinkAttribute::IfName(peer.into()));
        let info = LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]);
        self.add_link(index, name, info).unwrap_or_else(|error| panic!("veth {name}: {error}"));
    }

    /// Creates an Ethernet interface and its peer `NAME-peer`, both up.
    pub fn add_ethernet(&self, name: &str) {
        let peer = format!("{name}-peer");
        self.add_veth(name, &peer);
        self.up(name);
        self.up(&peer);
    }

    /// Creates an Ethernet bridge, down.
    pub fn add_bridge(&self, name: &str) {
        let info = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]);
        self.add_link(0, name, info).unwrap_or_else(|error| panic!("bridge {name}: {error}"));
    }

    fn add_link(&self, index: u32, name: &str, info: LinkAttribute) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.extend([LinkAttribute::IfName(name.into()), info]);
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Returns the index of a link.
    pub fn ifindex(&self, name: &str) -> u32 {
        nix::net::if_::if_nametoindex(name).unwrap_or_else(|errno| panic!("{name}: {errno}"))
    }

    /// Removes a link, and its peer if it has one.
    pub fn delete(&self, name: &str) {
        let mut link = LinkMessage::default();
        link.header.index = self.ifindex(name);
        self.request(RouteNetlinkMessage::DelLink(link), 0)
            .unwrap_or_else(|error| panic!("delete {name}: {error}"));
    }

    /// Brings a link up.
    pub fn up(&self, name: &str) {
        self.flag(name, LinkFlags::Up, true);
    }

    /// Waits until the kernel has sent its events that a link is up with carrier.
    pub fn wait_running(&self, name: &str) {
        let running = |interface: InterfaceAddress| {
            interface.interface_name == name
                && interface.flags.contains(InterfaceFlags::IFF_RUNNING)
        };
        look(format!("{name} to run"), || getifaddrs().expect("the interfaces").any(running));
        // The kernel may delay the event by up to a second. A request for this link makes it send the event
        // (`rtnl_getlink` since Linux 6.12).
        let mut link = LinkMessage::default();
        link.header.index = self.ifindex(name);
        self.exchange(RouteNetlinkMessage::GetLink(link), 0).expect("the link");
    }

    /// Takes a link down.
    pub fn down(&self, name: &str) {
        self.flag(name, LinkFlags::Up, false);
    }

    /// Sets or clears flags of a link.
    pub fn flag(&self, name: &str, flags: LinkFlags, on: bool) {
        self.change(name, |link| {
            link.header.change_mask = flags;
            link.header.flags = if on { flags } else { LinkFlags::empty() };
        });
    }

    /// Renames a link, which must be down.
    pub fn rename(&self, name: &str, to: &str) {
        self.change(name, |link| link.attributes.push(LinkAttribute::IfName(to.into())));
    }

    /// Gives a link another MAC.
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) {
        self.change(name, |link| link.attributes.push(LinkAttribute::Address(mac.into())));
    }

    /// Makes a link a port of a bridge, or of none.
    pub fn set_bridge(&self, name: &str, bridge: Option<&str>) {
        let index = bridge.map_or(0, |bridge| self.ifindex(bridge));
        self.change(name, |link| link.attributes.push(LinkAttribute::Controller(index)));
    }

    /// Makes a bridge flood multicasts to this port, or not.
    pub fn set_multicast(&self, port: &str, on: bool) {
        let flood = InfoPortData::BridgePort(vec![InfoBridgePort::MulticastFlood(on)]);
        let info = [LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(flood)];
        self.change(port, |link| link.attributes.push(LinkAttribute::LinkInfo(info.into())));
    }

    /// Gives a link alternative names of the maximum length, so that messages about it are long.
    pub fn add_alternative_names(&self, name: &str, names: u32) {
        for n in 0..names {
            self.add_alternative_name(name, &format!("{name}-{n:0>120}"));
        }
    }

    /// Gives a link an alternative name.
    pub fn add_alternative_name(&self, name: &str, alternative: &str) {
        let alternative = Prop::AltIfName(alternative.into());
        let mut link = LinkMessage::default();
        link.header.index = self.ifindex(name);
        link.attributes.push(LinkAttribute::PropList(vec![alternative]));
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND;
        self.request(RouteNetlinkMessage::NewLinkProp(link), flags).expect("an alternative name");
    }

    /// Moves a link into another namespace.
    pub fn move_to(&self, name: &str, netns: &Netns) {
        let fd = netns.as_fd().as_raw_fd();
        self.change(name, |link| link.attributes.push(LinkAttribute::NetNsFd(fd)));
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut LinkMessage)) {
        let mut link = LinkMessage::default();
        link.header.index = self.ifindex(name);
        change(&mut link);
        self.request(RouteNetlinkMessage::NewLink(link), 0)
            .unwrap_or_else(|error| panic!("change {name}: {error}"));
    }

    /// Adds an address such as `10.0.0.1/24`, or `fd00::1/64` without duplicate address detection.
    pub fn add_address(&self, name: &str, cidr: &str) {
        self.add(name, Address::new(cidr));
    }

    /// Adds an address with all its attributes.
    pub fn add(&self, name: &str, address: Address) {
        let message = RouteNetlinkMessage::NewAddress(address.message(self.ifindex(name)));
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE)
            .unwrap_or_else(|error| panic!("add to {name}: {error}"));
    }

    /// Removes an address.
    pub fn delete_address(&self, name: &str, cidr: &str) {
        self.remove(name, Address::new(cidr));
    }

    /// Adds or removes an address.
    pub fn set_address(&self, name: &str, cidr: &str, present: bool) {
        if present { self.add_address(name, cidr) } else { self.delete_address(name, cidr) }
    }

    /// Removes an address with all its attributes.
    pub fn remove(&self, name: &str, address: Address) {
        let message = RouteNetlinkMessage::DelAddress(address.message(self.ifindex(name)));
        self.request(message, 0).unwrap_or_else(|error| panic!("remove from {name}: {error}"));
    }

    /// Sends a request and waits for the kernel's acknowledgement.
    pub(crate) fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        match self.exchange(message, NLM_F_ACK | flags)? {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }

    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<NetlinkPayload<RouteNetlinkMessage>> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (reply, _) = self.0.recv_from_full()?;
        NetlinkMessage::deserialize(&reply)
            .map(|reply| reply.payload)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

/// An address with its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub local: IpAddr,
    pub prefix_len: u8,
    /// The peer's address, if it differs.
    pub peer: Option<IpAddr>,
    pub flags: AddressFlags,
    /// Seconds of validity; none is for ever.
    pub lifetime: Option<u32>,
}

impl Address {
    /// Parses text such as `10.0.0.1/24`.
    pub fn new(cidr: &str) -> Self {
        let (local, prefix_len) = cidr.split_once('/').expect("an address with a prefix length");
        Self {
            local: local.parse().expect("an IP address"),
            prefix_len: prefix_len.parse().expect("a prefix length"),
            peer: None,
            flags: AddressFlags::Nodad,
            lifetime: None,
        }
    }

    fn message(self, ifindex: u32) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = ifindex;
        message.header.prefix_len = self.prefix_len;
        message.header.family =
            if self.local.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.attributes = vec![
            AddressAttribute::Local(self.local),
            AddressAttribute::Address(self.peer.unwrap_or(self.local)),
            AddressAttribute::Flags(self.flags),
        ];
        if let Some(seconds) = self.lifetime {
            let mut info = netlink_packet_route::address::CacheInfo::default();
            info.ifa_valid = seconds;
            info.ifa_preferred = seconds;
            message.attributes.push(AddressAttribute::CacheInfo(info));
        }
        message
    }
}
