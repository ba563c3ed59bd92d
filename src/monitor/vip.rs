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
use netlink_packet_route::link::LinkFlags;

use super::{HookState, State};
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
    flags: LinkFlags,
    /// The dump of all links, or an event since it began, has shown the interface.
    seen: bool,
    /// Its addresses have been listed: a VIP not seen is a VIP not there.
    listed: bool,
    /// Where the VIP is configured now.
    instances: Instances,
    /// The part of these that the dump under way, or an event since it began, has shown.
    seen_instances: Instances,
}

/// Why the state is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The VIP has been added.
    AddressAdded,
    /// The VIP has been removed from an interface that is up, or has failed duplicate address detection.
    AddressRemoved,
    /// The VIP has been removed from an interface that is set down (not `IFF_UP`).
    InterfaceDown,
    /// The VIP has been removed from an interface without a carrier (not `IFF_RUNNING`).
    CarrierLost,
    /// There is no interface of the watched name any more.
    InterfaceGone,
    /// The network namespace has been deleted.
    NamespaceGone,
}

/// Follows the watched interface by its name, and the VIP on it.
///
/// Events and the messages of a dump are taken alike, as the kernel queues both on one socket in the order in which
/// they became true, but for deletions: see [`super::resync::Resync::handle_deletion`]. A dump tells nothing of
/// deletions that were missed, so what it did not show is swept out at its end.
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

    /// Why the state is what it is, once it is known.
    pub(super) fn cause(&self) -> Cause {
        match self.present() {
            _ if self.unreachable => Cause::NamespaceGone,
            None => Cause::InterfaceGone,
            Some(present) if !present.instances.is_empty() => Cause::AddressAdded,
            Some(present) if !present.flags.contains(LinkFlags::Up) => Cause::InterfaceDown,
            Some(present) if !present.flags.contains(LinkFlags::Running) => Cause::CarrierLost,
            Some(_) => Cause::AddressRemoved,
        }
    }

    /// What the hook is told, or none as long as it cannot be told.
    ///
    /// keepalived is in its fault state while the interface has not both `IFF_UP` and `IFF_RUNNING` (`FLAGS_UP` in
    /// `vrrp_if.h`), unless it has been told not to track it; then it keeps the VIP, which the kernel serves without
    /// a carrier, too, but not on an interface that is set down (`fib_disable_ip` in `net/ipv4/fib_frontend.c`).
    pub(super) fn hook_state(&self) -> Option<HookState> {
        let state = self.state()?;
        let flags = self.present().filter(|_| !self.unreachable).map(|present| present.flags);
        let has = |flag| flags.is_some_and(|flags| flags.contains(flag));
        Some(match state {
            State::Active if has(LinkFlags::Up) => HookState::Master,
            State::Backup if has(LinkFlags::Up | LinkFlags::Running) => HookState::Backup,
            _ => HookState::Fault,
        })
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
    pub(super) fn handle_link(&mut self, link: &Link) {
        if link.name.as_ref() == Some(&self.name) {
            let Link { ifindex, mac, flags, .. } = *link;
            let known = self.present_mut().filter(|present| present.ifindex == ifindex);
            if let Some(present) = known {
                (present.seen, present.flags) = (true, flags);
                present.mac = mac.or(present.mac).filter(|_| link.ethernet);
            } else {
                let new = Present { ifindex, mac, flags, seen: true, ..Present::default() };
                self.interface = Interface::Present(new);
            }
        } else if link.name.is_some() {
            // Some other link, or ours under a new name.
            self.handle_link_gone(link.ifindex);
        }
    }

    /// Handles the deletion of a link, or a rename away.
    pub(super) fn handle_link_gone(&mut self, ifindex: u32) {
        if self.ifindex() == Some(ifindex) {
            self.interface = Interface::Absent;
        }
    }

    /// From now on nobody can reach the VIP, whatever interface it is on.
    pub(super) fn mark_unreachable(&mut self) {
        self.unreachable = true;
    }

    /// Handles a new or changed address.
    pub(super) fn handle_address(&mut self, address: &Address) {
        if self.is_unusable(address) {
            self.handle_address_gone(address);
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
    pub(super) fn handle_address_gone(&mut self, address: &Address) {
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

    /// Whether it is the VIP, and known to be there.
    pub(super) fn is_known(&self, address: &Address) -> bool {
        let present = self.present().filter(|_| self.is_vip(address));
        present.is_some_and(|present| present.instances.contains(&instance(address)))
    }

    /// Whether it is the VIP.
    pub(super) fn is_vip(&self, address: &Address) -> bool {
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
