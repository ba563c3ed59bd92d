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

use super::{AddressKey, HookState, State};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Body, Link, Mac};

/// The watched interface, while it is there.
#[derive(Debug, Default)]
struct Interface {
    ifindex: u32,
    /// None if it is no Ethernet, or has not been mentioned yet.
    mac: Option<Mac>,
    flags: LinkFlags,
    /// The dump of all links, or an event since it began, has shown the interface.
    seen: bool,
    /// Its addresses have been listed: a VIP not seen is a VIP not there.
    listed: bool,
    /// Where the VIP is configured: once as a rule, twice as an oddity.
    instances: Vec<Instance, 8>,
}

/// One of the configurations of the VIP on the interface. For IPv4 they are told apart by the peer; IPv6 has each address
/// once on an interface, and may change its peer in place.
#[derive(Debug)]
struct Instance {
    id: IpAddr,
    /// The dump under way, or an event since it began, has shown it.
    seen: bool,
    /// The kernel uses it: it has not failed duplicate address detection.
    usable: bool,
}

impl Interface {
    fn has_vip(&self) -> bool {
        self.instances.iter().any(|instance| instance.usable)
    }
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
    /// There is no interface of the watched name any more.
    InterfaceGone,
    /// The network namespace has been deleted.
    NamespaceGone,
}

/// Follows the watched interface by its name, and the VIP on it.
///
/// Events and the messages of a dump are taken alike, as the kernel queues both on one socket in the order in which
/// they became true, but for what changes meanwhile: see [`super::resync::Resync::note_overtaken`]. A dump tells
/// nothing of deletions that were missed, so what it did not show is swept out at its end.
#[derive(Debug)]
pub(super) struct Vip {
    name: InterfaceName,
    cidr: Cidr,
    interface: Option<Interface>,
    /// Whether there is an interface of the name has been found out.
    is_known: bool,
    /// The network namespace has been deleted, and what is in it cannot be reached.
    unreachable: bool,
}

impl Vip {
    pub(super) fn new(name: InterfaceName, cidr: Cidr) -> Self {
        Self { name, cidr, interface: None, is_known: false, unreachable: false }
    }

    pub(super) fn state(&self) -> Option<State> {
        match &self.interface {
            _ if self.unreachable => Some(State::Backup),
            None => self.is_known.then_some(State::Backup),
            Some(interface) if interface.has_vip() => Some(State::Active),
            Some(interface) => interface.listed.then_some(State::Backup),
        }
    }

    pub(super) fn cause(&self) -> Cause {
        match &self.interface {
            _ if self.unreachable => Cause::NamespaceGone,
            None => Cause::InterfaceGone,
            Some(interface) if interface.has_vip() => Cause::AddressAdded,
            Some(_) if self.has_failed() => Cause::DuplicateAddress,
            Some(interface) if !interface.flags.contains(LinkFlags::Up) => Cause::InterfaceDown,
            Some(interface) if !interface.flags.contains(LinkFlags::Running) => Cause::CarrierLost,
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
        let reachable = self.interface.as_ref().filter(|_| !self.unreachable);
        let has = |flag| reachable.is_some_and(|interface| interface.flags.contains(flag));
        Some(match state {
            State::Active if has(LinkFlags::Up) => HookState::Master,
            State::Backup if has(LinkFlags::Up | LinkFlags::Running) => HookState::Backup,
            _ => HookState::Fault,
        })
    }

    /// The index of the watched interface, if it is there. At a new one its addresses have to be listed.
    pub(super) fn ifindex(&self) -> Option<u32> {
        self.interface.as_ref().map(|interface| interface.ifindex)
    }

    pub(super) fn is_interface_absent(&self) -> bool {
        self.is_known && self.interface.is_none()
    }

    /// Whether the dump of all links, or an event since it began, has shown the interface.
    pub(super) fn is_interface_seen(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.seen)
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.cidr.address()
    }

    /// What is announced if that is the VIP.
    pub(super) fn key(&self) -> Option<AddressKey> {
        let (interface, ip) = (self.interface.as_ref()?, self.ip());
        let id = interface.instances.first()?.id;
        let ipv4 = ip.is_ipv4().then_some((self.cidr.prefix_len(), id));
        Some(AddressKey { ifindex: interface.ifindex, ip, ipv4 })
    }

    pub(super) fn mac(&self) -> Option<Mac> {
        self.interface.as_ref()?.mac
    }

    pub(super) fn handle_link(&mut self, link: &Link) {
        if link.name.as_ref() == Some(&self.name) {
            let Link { ifindex, mac, flags, .. } = *link;
            self.is_known = true;
            match &mut self.interface {
                Some(known) if known.ifindex == ifindex => {
                    (known.seen, known.flags) = (true, flags);
                    known.mac = mac.or(known.mac).filter(|_| link.ethernet);
                }
                interface => {
                    let new = Interface { ifindex, mac, flags, seen: true, ..Default::default() };
                    *interface = Some(new);
                }
            }
        } else if link.name.is_some() {
            // Some other link, or ours under a new name.
            self.handle_link_gone(link.ifindex);
        }
    }

    /// Handles the deletion of a link, or a rename away.
    pub(super) fn handle_link_gone(&mut self, ifindex: u32) {
        self.interface.take_if(|interface| interface.ifindex == ifindex);
    }

    /// From now on nobody can reach the VIP, whatever interface it is on.
    pub(super) fn mark_unreachable(&mut self) {
        self.unreachable = true;
    }

    pub(super) fn handle_address(&mut self, address: &Address) {
        let usable = !self.is_unusable(address);
        let Some(interface) = self.vip_mut(address) else { return };
        let id = instance(address);
        if let Some(known) = interface.instances.iter_mut().find(|known| known.id == id) {
            (known.seen, known.usable) = (true, usable);
        } else {
            // If there is no room, it is found when one of them goes.
            let _ = interface.instances.push(Instance { id, seen: true, usable });
        }
    }

    /// Whether this is the end of one of so many instances that there may be others, which are to be listed.
    pub(super) fn may_have_more(&self, body: &Body) -> bool {
        let is_full = self.interface.as_ref().is_some_and(|i| i.instances.is_full());
        is_full && matches!(body, Body::DelAddress(address) if self.is_vip(address))
    }

    pub(super) fn handle_address_gone(&mut self, address: &Address) {
        if let Some(interface) = self.vip_mut(address) {
            interface.instances.retain(|known| known.id != instance(address));
        }
    }

    /// Whether it is the VIP, but the kernel does not use it, because another station has it.
    pub(super) fn is_unusable(&self, address: &Address) -> bool {
        address.flags.contains(AddressFlags::Dadfailed) && self.is_vip(address)
    }

    /// Whether the VIP is there, but the kernel does not use it.
    pub(super) fn has_failed(&self) -> bool {
        self.interface.as_ref().is_some_and(|i| !i.instances.is_empty() && !i.has_vip())
    }

    pub(super) fn is_vip(&self, address: &Address) -> bool {
        self.ifindex() == Some(address.ifindex) && self.cidr == address.cidr
    }

    /// Whether it is the VIP's, but on another interface, or with another prefix length.
    pub(super) fn is_misplaced(&self, address: &Address) -> bool {
        self.ip() == address.cidr.address() && !self.is_vip(address)
    }

    /// The interface, if the address is the VIP on it.
    fn vip_mut(&mut self, address: &Address) -> Option<&mut Interface> {
        if self.is_vip(address) { self.interface.as_mut() } else { None }
    }

    pub(super) fn links_begin(&mut self) {
        if let Some(interface) = &mut self.interface {
            interface.seen = false;
        }
    }

    /// All links have been listed, and the interface asked for by its name: if neither has shown it, there is
    /// none.
    pub(super) fn interface_end(&mut self) {
        self.is_known = true;
        self.interface.take_if(|interface| !interface.seen);
    }

    /// A dump of the watched interface's addresses begins, if it is there: at this index.
    pub(super) fn addresses_begin(&mut self) -> Option<u32> {
        let interface = self.interface.as_mut()?;
        interface.instances.iter_mut().for_each(|instance| instance.seen = false);
        Some(interface.ifindex)
    }

    /// The dump of the addresses of the interface with this index is complete. Had the interface been replaced
    /// meanwhile, it would have listed those of the old one.
    pub(super) fn addresses_end(&mut self, ifindex: u32) {
        if let Some(interface) = &mut self.interface
            && interface.ifindex == ifindex
        {
            interface.listed = true;
            interface.instances.retain(|instance| instance.seen);
        }
    }
}

/// What tells an instance from the others.
fn instance(address: &Address) -> IpAddr {
    if address.peer.is_ipv4() { address.peer } else { address.cidr.address() }
}
