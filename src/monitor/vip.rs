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
//!  a  a link has the watched name            b  the VIP is added, or listed
//!  c  the addresses are listed without it    d  the VIP is removed, not listed, or has failed
//!  e  the link is deleted or renamed, or the kernel has none of that name
//! ```
//!
//! A link of the watched name with another index is a new one, whose addresses are unknown. Once the network namespace
//! has been deleted, the state is Backup.
//!
//! A dump of addresses takes no RTNL lock (`inet_dump_ifaddr` in `net/ipv4/devinet.c`), so it may list an address after
//! the event of its deletion or change. An event is never older than an entry of a running dump.

use core::net::IpAddr;
use netlink_packet_route::link::LinkFlags;

use super::interface::{Detection, Instance, Interface, Listing, instance_id};
use super::split_brain::virtual_router;
use super::{AddressKey, HookState, State};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Link, Mac};

/// Whether an interface has the watched name.
#[derive(Debug)]
enum Presence {
    Unknown,
    Absent,
    Present(Interface),
}

/// Why the state is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The VIP has been added.
    AddressAdded,
    /// The VIP has been removed from an interface that is up.
    AddressRemoved,
    /// The VIP has failed duplicate address detection: another station has it.
    DuplicateAddress,
    /// The VIP has been removed from an interface that is set down (not `IFF_UP`).
    InterfaceDown,
    /// The VIP has been removed from an interface without a carrier (not `IFF_RUNNING`).
    CarrierLost,
    /// The watched interface was deleted or renamed.
    InterfaceGone,
    /// The network namespace has been deleted.
    NamespaceGone,
}

/// Follows the watched interface by its name, and the VIP on it.
///
/// A dump does not report missed deletions, so its end removes everything that it has not shown.
#[derive(Debug)]
pub(super) struct Vip {
    name: InterfaceName,
    cidr: Cidr,
    presence: Presence,
    namespace_gone: bool,
}

impl Vip {
    pub(super) fn new(name: InterfaceName, cidr: Cidr) -> Self {
        Self { name, cidr, presence: Presence::Unknown, namespace_gone: false }
    }

    pub(super) fn state(&self) -> Option<State> {
        match &self.presence {
            _ if self.namespace_gone => Some(State::Backup),
            Presence::Unknown => None,
            Presence::Absent => Some(State::Backup),
            Presence::Present(interface) if interface.has_vip() => Some(State::Active),
            Presence::Present(interface) => interface.is_listed.then_some(State::Backup),
        }
    }

    fn interface(&self) -> Option<&Interface> {
        if let Presence::Present(interface) = &self.presence { Some(interface) } else { None }
    }

    fn interface_mut(&mut self) -> Option<&mut Interface> {
        if let Presence::Present(interface) = &mut self.presence { Some(interface) } else { None }
    }

    pub(super) fn cause(&self) -> Cause {
        match self.interface() {
            _ if self.namespace_gone => Cause::NamespaceGone,
            None => Cause::InterfaceGone,
            Some(interface) if interface.has_vip() => Cause::AddressAdded,
            Some(_) if self.has_duplicate() => Cause::DuplicateAddress,
            Some(interface) => interface.down_cause().unwrap_or(Cause::AddressRemoved),
        }
    }

    /// Returns the state for the hook, which may bind to the VIP. None: unknown, or duplicate address detection runs.
    ///
    /// keepalived is in its fault state while the interface has not both `IFF_UP` and `IFF_RUNNING` (`FLAGS_UP` in
    /// `vrrp_if.h`). If it is configured not to track the interface, it retains the VIP. The kernel serves the VIP without
    /// a carrier, but not on an interface that is set down (`fib_disable_ip` in `net/ipv4/fib_frontend.c`).
    pub(super) fn hook_state(&self) -> Option<HookState> {
        let state = self.state()?;
        let reachable = self.interface().filter(|_| !self.namespace_gone);
        let has = |flag| reachable.is_some_and(|interface| interface.flags.contains(flag));
        Some(match state {
            State::Active if has(LinkFlags::Up) => {
                let passed = |instance: &Instance| instance.detection == Detection::Passed;
                reachable.filter(|interface| interface.instances.iter().any(passed))?;
                HookState::Master
            }
            State::Backup if has(LinkFlags::Up | LinkFlags::Running) => HookState::Backup,
            _ => HookState::Fault,
        })
    }

    /// Returns the index of the watched interface, if that exists.
    pub(super) fn ifindex(&self) -> Option<u32> {
        self.interface().map(|interface| interface.ifindex)
    }

    pub(super) fn is_interface_absent(&self) -> bool {
        matches!(self.presence, Presence::Absent)
    }

    pub(super) fn has_name(&self, name: Option<InterfaceName>) -> bool {
        name == Some(self.name)
    }

    /// Returns why the VIP is present but unusable: the interface is down, or has no carrier.
    pub(super) fn down_cause(&self) -> Option<Cause> {
        self.interface()
            .filter(|interface| interface.has_vip() && !self.namespace_gone)?
            .down_cause()
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.cidr.address()
    }

    /// Returns the key of the VIP, for an announcement.
    pub(super) fn key(&self) -> Option<AddressKey> {
        let (interface, ip) = (self.interface()?, self.ip());
        let id = interface.instances.first()?.id;
        let ipv4 = ip.is_ipv4().then_some((self.cidr.prefix_len(), id));
        Some(AddressKey { ifindex: interface.ifindex, ip, ipv4 })
    }

    pub(super) fn mac(&self) -> Option<Mac> {
        self.interface()?.mac
    }

    /// Returns the index of the link with a MAC of its own that sends for the watched interface: the one below, if that
    /// has a virtual MAC.
    pub(super) fn own_link(&self) -> Option<u32> {
        let Interface { ifindex, mac, parent, .. } = self.interface()?;
        if mac.and_then(virtual_router).is_some() { *parent } else { Some(*ifindex) }
    }

    /// Returns whether a frame can leave the watched interface.
    pub(super) fn has_carrier(&self) -> bool {
        self.interface().is_some_and(|interface| interface.down_cause().is_none())
    }

    /// Handles an event of a link, or the answer to the request for the watched one.
    pub(super) fn handle_link(&mut self, link: &Link) {
        if self.has_name(link.name) {
            let Link { ifindex, mac, parent, flags, .. } = *link;
            match &mut self.presence {
                Presence::Present(known) if known.ifindex == ifindex => {
                    if flags.contains(LinkFlags::Up) && !known.flags.contains(LinkFlags::Up) {
                        known.restart_detection();
                    }
                    (known.seen, known.flags) = (true, flags);
                    known.mac = mac.or(known.mac).filter(|_| link.ethernet);
                    known.parent = parent.or(known.parent);
                }
                presence => {
                    let new = Interface { ifindex, mac, parent, flags, ..Default::default() };
                    *presence = Presence::Present(Interface { seen: true, ..new });
                }
            }
        } else if link.name.is_some() {
            // Another link, or the watched one under a new name.
            self.handle_link_gone(link.ifindex);
        }
    }

    /// Returns whether a dump has to show whether duplicate address detection of the VIP has started again.
    pub(super) fn take_detection_restart(&mut self) -> bool {
        self.interface_mut().is_some_and(|i| core::mem::take(&mut i.detection_restarts))
    }

    /// Handles the deletion of a link, or its rename to another name.
    pub(super) fn handle_link_gone(&mut self, ifindex: u32) {
        if self.ifindex() == Some(ifindex) {
            self.presence = Presence::Absent;
        }
    }

    pub(super) fn handle_namespace_gone(&mut self) {
        self.namespace_gone = true;
    }

    /// Handles a new or changed address, or one that is `listed` by the running dump.
    pub(super) fn handle_address(&mut self, address: &Address, listed: bool) {
        let detection = Detection::of(address);
        let Some(interface) = self.vip_mut(address) else { return };
        let id = instance_id(address);
        let known = interface.instances.iter_mut().find(|known| known.id == id);
        let is_news =
            interface.listing == Listing::Current && known.as_ref().is_none_or(|k| !k.seen);
        if listed && !is_news {
            // An event since the start of the dump is newer.
        } else if let Some(known) = known {
            (known.seen, known.detection) = (true, detection);
        } else {
            // An instance without room is listed by the dump after the deletion of another.
            let _ = interface.instances.push(Instance { id, seen: true, detection });
        }
    }

    /// Handles the deletion of an address. Returns whether a dump has to find instances of the VIP that had no room.
    pub(super) fn handle_address_gone(&mut self, address: &Address) -> bool {
        let Some(interface) = self.vip_mut(address) else { return false };
        if interface.listing == Listing::Current {
            interface.listing = Listing::Outdated;
        }
        let was_full = interface.instances.is_full();
        interface.instances.retain(|known| known.id != instance_id(address));
        interface.is_listed &= !was_full;
        was_full
    }

    /// Returns whether the address is the VIP and has failed duplicate address detection.
    pub(super) fn is_duplicate(&self, address: &Address) -> bool {
        self.is_vip(address) && Detection::of(address) == Detection::Failed
    }

    /// Returns whether the VIP is on the interface, but has failed duplicate address detection.
    pub(super) fn has_duplicate(&self) -> bool {
        let fails = |i: &Interface| !i.instances.is_empty() && !i.has_vip();
        !self.namespace_gone && self.interface().is_some_and(fails)
    }

    pub(super) fn is_vip(&self, address: &Address) -> bool {
        self.ifindex() == Some(address.ifindex) && self.cidr == address.cidr
    }

    /// Returns the interface, if the address is the VIP on it.
    fn vip_mut(&mut self, address: &Address) -> Option<&mut Interface> {
        if self.is_vip(address) { self.interface_mut() } else { None }
    }

    /// Handles the start of the request for the interface by its name.
    pub(super) fn interface_begin(&mut self) {
        if let Some(interface) = self.interface_mut() {
            interface.seen = false;
        }
    }

    /// Handles the end of that request: an interface that neither its answer nor an event has shown is absent.
    pub(super) fn interface_end(&mut self) {
        if !self.interface().is_some_and(|interface| interface.seen) {
            self.presence = Presence::Absent;
        }
    }

    /// Handles the start of a dump of addresses.
    pub(super) fn addresses_begin(&mut self) {
        if let Some(interface) = self.interface_mut() {
            interface.listing = Listing::Current;
            interface.instances.iter_mut().for_each(|instance| instance.seen = false);
        }
    }

    /// Handles the end of a dump of addresses. Returns whether the state is certain.
    pub(super) fn addresses_end(&mut self, is_complete: bool) -> bool {
        let Some(interface) = self.interface_mut() else { return is_complete };
        let listing = core::mem::take(&mut interface.listing);
        if listing == Listing::Current && is_complete {
            interface.is_listed = true;
            interface.instances.retain(|instance| instance.seen);
        }
        is_complete && listing != Listing::Outdated
    }
}
