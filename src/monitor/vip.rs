//! Active or backup: whether the VIP is on the watched interface.

use core::net::IpAddr;
use heapless::Vec;
use netlink_packet_route::address::AddressFlags;

use super::State;
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Link, Mac};

/// Configurations of one local IPv4 address on one interface that are told apart by their peer.
/// One is the rule, two an oddity.
type Instances = Vec<IpAddr, 8>;

/// Where the watched interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    /// Not known yet.
    Unknown,
    /// There is none of its name.
    Absent,
    /// It has this index.
    At(u32),
}

/// Follows the watched interface by its name, and the VIP on it.
///
/// Events and the messages of a dump are taken alike; the kernel queues both on one socket in the
/// order in which they became true. A dump tells nothing of deletions that were missed, so what it
/// did not show is swept out at its end.
#[derive(Debug)]
pub(super) struct Vip {
    name: InterfaceName,
    cidr: Cidr,
    interface: Interface,
    mac: Option<Mac>,
    interface_seen: bool,
    /// The network namespace has gone.
    lost: bool,
    /// The addresses of the interface have been listed: a VIP not seen is a VIP not there.
    listed: bool,
    /// Where the VIP is configured now.
    held: Instances,
    /// The part of `held` that the dump under way, or an event since it began, has shown.
    seen: Instances,
}

impl Vip {
    pub(super) fn new(name: InterfaceName, cidr: Cidr) -> Self {
        Self {
            name,
            cidr,
            interface: Interface::Unknown,
            mac: None,
            interface_seen: false,
            lost: false,
            listed: false,
            held: Instances::new(),
            seen: Instances::new(),
        }
    }

    /// The state, or none as long as it cannot be told.
    pub(super) fn state(&self) -> Option<State> {
        match self.interface {
            _ if self.lost => Some(State::Backup),
            Interface::Unknown => None,
            Interface::Absent => Some(State::Backup),
            Interface::At(_) if !self.held.is_empty() => Some(State::Active),
            Interface::At(_) => self.listed.then_some(State::Backup),
        }
    }

    /// The index of the watched interface, if it is there.
    pub(super) fn ifindex(&self) -> Option<u32> {
        match self.interface {
            Interface::At(ifindex) => Some(ifindex),
            Interface::Unknown | Interface::Absent => None,
        }
    }

    /// The VIP itself.
    pub(super) fn ip(&self) -> IpAddr {
        self.cidr.address()
    }

    /// The MAC of the watched interface, if it is an Ethernet.
    pub(super) fn mac(&self) -> Option<Mac> {
        self.mac
    }

    /// Where the watched interface is. At a new index its addresses have to be listed.
    pub(super) fn interface(&self) -> Interface {
        self.interface
    }

    /// Takes a new or changed link.
    pub(super) fn on_link(&mut self, link: &Link) {
        if link.name.as_ref() == Some(&self.name) {
            self.interface_seen = true;
            if self.interface != Interface::At(link.ifindex) {
                self.become_interface(Interface::At(link.ifindex));
            }
            self.mac = link.mac.or(self.mac).filter(|_| link.ethernet);
        } else if link.name.is_some() {
            // Some other link, or ours under a new name.
            self.on_link_gone(link.ifindex);
        }
    }

    /// Takes the end of a link, or of its having our name.
    pub(super) fn on_link_gone(&mut self, ifindex: u32) {
        if self.interface == Interface::At(ifindex) {
            self.interface_seen = false;
            self.become_interface(Interface::Absent);
        }
    }

    /// From now on nobody can reach the VIP, whatever interface it is on.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    fn become_interface(&mut self, interface: Interface) {
        self.interface = interface;
        self.mac = None;
        self.listed = false;
        self.held.clear();
        self.seen.clear();
    }

    /// Takes a new or changed address.
    pub(super) fn on_address(&mut self, address: &Address) {
        if self.is_unusable(address) {
            self.on_address_gone(address);
        } else if self.is_vip(address) {
            for holders in [&mut self.held, &mut self.seen] {
                if !holders.contains(&holder(address)) {
                    // TableFull only when the VIP is already there eight times over.
                    let _ = holders.push(holder(address));
                }
            }
        }
    }

    /// Takes the end of an address.
    pub(super) fn on_address_gone(&mut self, address: &Address) {
        if self.is_vip(address) {
            for holders in [&mut self.held, &mut self.seen] {
                holders.retain(|present| *present != holder(address));
            }
        }
    }

    /// Whether it is the VIP, but the kernel does not use it, because another station has it.
    pub(super) fn is_unusable(&self, address: &Address) -> bool {
        address.flags.contains(AddressFlags::Dadfailed) && self.is_vip(address)
    }

    fn is_vip(&self, address: &Address) -> bool {
        self.interface == Interface::At(address.ifindex) && self.cidr == address.cidr
    }

    /// A dump of all links begins.
    pub(super) fn links_begin(&mut self) {
        self.interface_seen = false;
    }

    /// Whether the dump of all links, or an event since it began, has shown the interface.
    pub(super) fn is_interface_seen(&self) -> bool {
        self.interface_seen
    }

    /// It has been asked for by its name, too.
    pub(super) fn interface_end(&mut self) {
        if !self.interface_seen && self.interface != Interface::Absent {
            self.become_interface(Interface::Absent);
        }
    }

    /// A dump of the watched interface's addresses begins, if it is there: at this index.
    pub(super) fn addresses_begin(&mut self) -> Option<u32> {
        self.seen.clear();
        self.ifindex()
    }

    /// The dump of the addresses of the interface with this index is complete.
    pub(super) fn addresses_end(&mut self, ifindex: u32) {
        // Had the interface been replaced meanwhile, it would have listed those of the old one.
        if self.ifindex() == Some(ifindex) {
            self.listed = true;
            self.held = self.seen.clone();
        }
    }
}

/// What tells apart several configurations of one local address: for IPv4 the peer.
///
/// IPv6 has each address once on an interface, and may change its peer in place.
fn holder(address: &Address) -> IpAddr {
    if address.peer.is_ipv4() { address.peer } else { address.cidr.address() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkFlags;

    const VIP: &str = "169.254.0.5/24";

    fn link(ifindex: u32, name: &str) -> Link {
        let name = InterfaceName::new(name.as_bytes()).ok();
        Link {
            ifindex,
            name,
            flags: LinkFlags::Up,
            ethernet: true,
            mac: Some([2, 0, 0, 0, 0, 1]),
            carrier_changes: Some(0),
            ipv6_forwarding: None,
        }
    }

    fn address(ifindex: u32, cidr: &str) -> Address {
        let cidr: Cidr = cidr.parse().unwrap();
        let flags = AddressFlags::Permanent;
        Address { ifindex, cidr, peer: cidr.address(), flags, refreshed: false }
    }

    /// A watch on `ha` (index 5) for the VIP, after a first dump that showed these addresses.
    fn listed(shown: &[Address]) -> Vip {
        let mut vip = Vip::new(InterfaceName::new(b"ha").unwrap(), VIP.parse().unwrap());
        assert_eq!(vip.state(), None);
        vip.links_begin();
        vip.on_link(&link(1, "lo"));
        vip.on_link(&link(5, "ha"));
        vip.interface_end();
        assert_eq!(vip.state(), None, "not before the addresses are known");
        vip.addresses_begin();
        for address in shown {
            vip.on_address(address);
        }
        vip.addresses_end(5);
        vip
    }

    #[test]
    fn state_is_known_after_the_first_dump() {
        assert_eq!(listed(&[]).state(), Some(State::Backup));
        assert_eq!(listed(&[address(5, VIP)]).state(), Some(State::Active));
    }

    #[test]
    fn other_prefix_other_interface_other_address_are_not_the_vip() {
        let mut vip = listed(&[]);
        for (ifindex, cidr) in [(5, "169.254.0.5/32"), (6, VIP), (5, "169.254.0.6/24")] {
            vip.on_address(&address(ifindex, cidr));
            assert_eq!(vip.state(), Some(State::Backup), "{ifindex} {cidr}");
        }
    }

    #[test]
    fn what_a_dump_does_not_show_is_swept_out() {
        let mut vip = listed(&[address(5, VIP)]);
        vip.addresses_begin();
        assert_eq!(vip.state(), Some(State::Active));
        vip.addresses_end(5);
        assert_eq!(vip.state(), Some(State::Backup));
    }

    #[test]
    fn events_during_a_dump_count() {
        let mut vip = listed(&[]);
        vip.addresses_begin();
        vip.on_address(&address(5, VIP));
        vip.addresses_end(5);
        assert_eq!(vip.state(), Some(State::Active));
        vip.addresses_begin();
        vip.on_address(&address(5, VIP));
        vip.on_address_gone(&address(5, VIP));
        vip.addresses_end(5);
        assert_eq!(vip.state(), Some(State::Backup));
    }

    #[test]
    fn dump_of_an_interface_that_was_replaced_meanwhile_proves_nothing() {
        let mut vip = listed(&[address(5, VIP)]);
        vip.addresses_begin();
        vip.on_link_gone(5);
        vip.on_link(&link(7, "ha"));
        vip.addresses_end(5);
        assert_eq!(vip.state(), None);
        vip.on_address(&address(7, VIP));
        assert_eq!(vip.state(), Some(State::Active));
    }

    #[test]
    fn interface_lost_means_backup() {
        let ways: [fn(&mut Vip); 3] = [
            |vip| vip.on_link_gone(5),
            |vip| vip.on_link(&link(5, "away")),
            |vip| {
                vip.links_begin();
                vip.interface_end();
            },
        ];
        for lose in ways {
            let mut vip = listed(&[address(5, VIP)]);
            lose(&mut vip);
            assert_eq!((vip.state(), vip.interface()), (Some(State::Backup), Interface::Absent));
        }
    }

    #[test]
    fn vip_that_failed_duplicate_address_detection_is_not_held() {
        let tentative = Address { flags: AddressFlags::Tentative, ..address(5, VIP) };
        let flags = AddressFlags::Tentative | AddressFlags::Dadfailed;
        let failed = Address { flags, ..address(5, VIP) };
        let mut vip = listed(&[tentative]);
        assert_eq!((vip.state(), vip.is_unusable(&tentative)), (Some(State::Active), false));
        vip.addresses_begin();
        vip.on_address(&tentative);
        vip.on_address(&failed);
        assert_eq!((vip.state(), vip.is_unusable(&failed)), (Some(State::Backup), true));
        vip.addresses_end(5);
        assert_eq!(vip.state(), Some(State::Backup));
        let elsewhere = Address { ifindex: 6, ..failed };
        assert!(!vip.is_unusable(&elsewhere));
        assert_eq!(listed(&[failed]).state(), Some(State::Backup));
    }

    #[test]
    fn mac_is_kept_until_another_is_mentioned_or_the_interface_is_another() {
        let mac = link(5, "ha").mac;
        let mut vip = listed(&[]);
        vip.on_link(&Link { mac: None, ..link(5, "ha") });
        assert_eq!(vip.mac(), mac, "a wireless event");
        vip.on_link(&Link { mac: None, ..link(6, "ha") });
        assert_eq!(vip.mac(), None, "that of another is not known");
        vip.on_link(&link(6, "ha"));
        assert_eq!(vip.mac(), mac);
        vip.on_link(&Link { ethernet: false, mac: None, ..link(6, "ha") });
        assert_eq!(vip.mac(), None);
    }

    #[test]
    fn one_local_address_with_two_peers_is_gone_with_the_second() {
        let with_peer = Address { peer: "10.9.0.1".parse().unwrap(), ..address(5, VIP) };
        let mut vip = listed(&[address(5, VIP), with_peer]);
        vip.on_address_gone(&with_peer);
        assert_eq!(vip.state(), Some(State::Active));
        vip.on_address_gone(&address(5, VIP));
        assert_eq!(vip.state(), Some(State::Backup));
    }

    #[test]
    fn ipv6_address_may_change_its_peer_in_place() {
        let mut vip = Vip::new(InterfaceName::new(b"ha").unwrap(), "fd00::5/64".parse().unwrap());
        vip.on_link(&link(5, "ha"));
        vip.addresses_begin();
        let plain = address(5, "fd00::5/64");
        let with_peer = Address { peer: "fd00::9".parse().unwrap(), ..plain };
        vip.on_address(&plain);
        vip.on_address(&with_peer);
        vip.on_address_gone(&with_peer);
        vip.addresses_end(5);
        assert_eq!(vip.state(), Some(State::Backup));
    }
}
