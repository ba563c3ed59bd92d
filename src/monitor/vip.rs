//! Active or backup: whether the VIP is on the watched interface.
//!
//! ```text
//!            a                           b            d
//!  Unknown ─────► Present, no state yet ───► Active ─────► Backup
//!     │             ▲    │     │              │  ▲          │  ▲
//!     │             │    │     └──────── c ───┼──┼──────────┼──┘
//!     │           a │    │ e                e │  └─── b ────┤
//!     │      e      │    ▼                    │             │ e
//!     └─────────► Absent, so Backup ◄─────────┴─────────────┘
//!
//!  a  there is a link of our name           b  the VIP is added, or listed
//!  c  the addresses are listed without it   d  the VIP is removed, not listed, or has failed
//!  e  the link is deleted, renamed, or neither listed nor found by its name
//! ```
//!
//! A link of our name with another index is another one, of whose addresses nothing is known yet. Once the
//! network namespace has been deleted, the state is Backup whatever there is.

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

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is only one, and a box would allocate")]
enum Interface {
    /// Whether there is one of its name is not known yet.
    Unknown,
    /// There is none of its name.
    Absent,
    Present(Present),
}

/// The watched interface, while it is there.
#[derive(Debug, Default)]
struct Present {
    ifindex: u32,
    /// None if it is no Ethernet, or has not been mentioned yet.
    mac: Option<Mac>,
    /// The dump of all links, or an event since it began, has shown the interface.
    seen: bool,
    /// Its addresses have been listed: a VIP not seen is a VIP not there.
    listed: bool,
    /// Where the VIP is configured now.
    instances: Instances,
    /// The part of these that the dump under way, or an event since it began, has shown.
    seen_instances: Instances,
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
    /// The network namespace has been deleted, and what is in it cannot be reached.
    unreachable: bool,
}

impl Vip {
    pub(super) fn new(name: InterfaceName, cidr: Cidr) -> Self {
        Self { name, cidr, interface: Interface::Unknown, unreachable: false }
    }

    /// The state, or none as long as it cannot be told.
    pub(super) fn state(&self) -> Option<State> {
        match &self.interface {
            _ if self.unreachable => Some(State::Backup),
            Interface::Unknown => None,
            Interface::Absent => Some(State::Backup),
            Interface::Present(present) if !present.instances.is_empty() => Some(State::Active),
            Interface::Present(present) => present.listed.then_some(State::Backup),
        }
    }

    /// The index of the watched interface, if it is there. At a new one its addresses have to be listed.
    pub(super) fn ifindex(&self) -> Option<u32> {
        self.present().map(|present| present.ifindex)
    }

    /// Whether there is no interface of the watched name.
    pub(super) fn is_interface_absent(&self) -> bool {
        matches!(self.interface, Interface::Absent)
    }

    /// Whether the dump of all links, or an event since it began, has shown the interface.
    pub(super) fn is_interface_seen(&self) -> bool {
        self.present().is_some_and(|present| present.seen)
    }

    /// The VIP itself.
    pub(super) fn ip(&self) -> IpAddr {
        self.cidr.address()
    }

    /// The MAC of the watched interface, if it is an Ethernet.
    pub(super) fn mac(&self) -> Option<Mac> {
        self.present()?.mac
    }

    fn present(&self) -> Option<&Present> {
        match &self.interface {
            Interface::Present(present) => Some(present),
            Interface::Unknown | Interface::Absent => None,
        }
    }

    fn present_mut(&mut self) -> Option<&mut Present> {
        match &mut self.interface {
            Interface::Present(present) => Some(present),
            Interface::Unknown | Interface::Absent => None,
        }
    }

    /// Handles a new or changed link.
    pub(super) fn on_link(&mut self, link: &Link) {
        if link.name.as_ref() == Some(&self.name) {
            let Link { ifindex, mac, .. } = *link;
            let known = self.present_mut().filter(|present| present.ifindex == ifindex);
            if let Some(present) = known {
                present.seen = true;
                present.mac = mac.or(present.mac).filter(|_| link.ethernet);
            } else {
                let new = Present { ifindex, mac, seen: true, ..Present::default() };
                self.interface = Interface::Present(new);
            }
        } else if link.name.is_some() {
            // Some other link, or ours under a new name.
            self.on_link_gone(link.ifindex);
        }
    }

    /// Handles the deletion of a link, or a rename away.
    pub(super) fn on_link_gone(&mut self, ifindex: u32) {
        if self.ifindex() == Some(ifindex) {
            self.interface = Interface::Absent;
        }
    }

    /// From now on nobody can reach the VIP, whatever interface it is on.
    pub(super) fn mark_unreachable(&mut self) {
        self.unreachable = true;
    }

    /// Handles a new or changed address.
    pub(super) fn on_address(&mut self, address: &Address) {
        if self.is_unusable(address) {
            self.on_address_gone(address);
        } else if let Some(present) = self.vip_mut(address) {
            let instance = instance(address);
            for instances in [&mut present.instances, &mut present.seen_instances] {
                if !instances.contains(&instance) {
                    // Full only when the VIP is already there eight times over.
                    let _ = instances.push(instance);
                }
            }
        }
    }

    /// Handles the deletion of an address.
    pub(super) fn on_address_gone(&mut self, address: &Address) {
        if let Some(present) = self.vip_mut(address) {
            for instances in [&mut present.instances, &mut present.seen_instances] {
                instances.retain(|known| *known != instance(address));
            }
        }
    }

    /// Whether it is the VIP, but the kernel does not use it, because another station has it.
    pub(super) fn is_unusable(&self, address: &Address) -> bool {
        address.flags.contains(AddressFlags::Dadfailed) && self.is_vip(address)
    }

    fn is_vip(&self, address: &Address) -> bool {
        self.ifindex() == Some(address.ifindex) && self.cidr == address.cidr
    }

    /// The interface, if the address is the VIP on it.
    fn vip_mut(&mut self, address: &Address) -> Option<&mut Present> {
        if self.is_vip(address) { self.present_mut() } else { None }
    }

    /// A dump of all links begins.
    pub(super) fn links_begin(&mut self) {
        if let Some(present) = self.present_mut() {
            present.seen = false;
        }
    }

    /// All links have been listed, and the interface asked for by its name: if neither has shown it, there is
    /// none.
    pub(super) fn interface_end(&mut self) {
        if !self.is_interface_seen() {
            self.interface = Interface::Absent;
        }
    }

    /// A dump of the watched interface's addresses begins, if it is there: at this index.
    pub(super) fn addresses_begin(&mut self) -> Option<u32> {
        let present = self.present_mut()?;
        present.seen_instances.clear();
        Some(present.ifindex)
    }

    /// The dump of the addresses of the interface with this index is complete. Had the interface been replaced
    /// meanwhile, it would have listed those of the old one.
    pub(super) fn addresses_end(&mut self, ifindex: u32) {
        if let Some(present) = self.present_mut().filter(|present| present.ifindex == ifindex) {
            present.listed = true;
            present.instances = present.seen_instances.clone();
        }
    }
}

/// What tells apart several configurations of one local address: for IPv4 the peer.
///
/// IPv6 has each address once on an interface, and may change its peer in place.
fn instance(address: &Address) -> IpAddr {
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
            assert_eq!((vip.state(), vip.is_interface_absent()), (Some(State::Backup), true));
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
