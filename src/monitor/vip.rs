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
//! The kernel's answer is newer than the events that wait in the queue. So its entries form a view of their own, over
//! which these events are replayed. When the queue has been read to its end, that view replaces the one in use, which
//! events alone have changed until then. So the state never goes back in time, whatever the order of entries and events.

use core::mem::take;
use core::net::IpAddr;

use netlink_packet_route::link::LinkFlags;

use super::interface::{Interface, Presence};
use super::places::{Detection, Place, Places};
use super::vrrp::{Instance, virtual_router_id};
use super::{AddressKey, Answer, HookState, State};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Link, Mac};

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

/// The watched interface, and the places of the VIP's address.
#[derive(Debug, Default)]
struct View {
    presence: Presence,
    places: Places,
}

/// A view of the kernel's answers, until it replaces the one in use.
#[derive(Debug)]
struct Next {
    view: View,
    scope: Scope,
    /// None: the last answer has not ended.
    answer: Option<Answer>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The watched interface and its addresses.
    Watched,
    /// All addresses.
    All,
}

/// Follows the watched interface by its name, and the VIP's address on every interface.
#[derive(Debug)]
pub(super) struct Vip {
    name: InterfaceName,
    cidr: Cidr,
    view: View,
    next: Option<Next>,
    /// The watched interface has come up with an IPv6 VIP, whose detection may have started again.
    detection_restarts: bool,
    namespace_gone: bool,
}

impl View {
    fn interface(&self) -> Option<&Interface> {
        if let Presence::Present(interface) = &self.presence { Some(interface) } else { None }
    }

    fn ifindex(&self) -> Option<u32> {
        self.interface().map(|interface| interface.ifindex)
    }

    /// Handles a link. Returns whether the watched interface has come up.
    fn handle_link(&mut self, link: &Link, watched: &InterfaceName) -> bool {
        self.places.set_link(link);
        if link.name == Some(*watched) {
            match &mut self.presence {
                Presence::Present(known) if known.ifindex == link.ifindex => {
                    return known.update(link);
                }
                presence => *presence = Presence::Present(Interface::new(link)),
            }
        } else if link.name.is_some() && self.ifindex() == Some(link.ifindex) {
            // It has another name now.
            self.presence = Presence::Absent;
        }
        false
    }

    fn handle_link_gone(&mut self, ifindex: u32) {
        self.places.remove_link(ifindex);
        if self.ifindex() == Some(ifindex) {
            self.presence = Presence::Absent;
        }
    }
}

impl Vip {
    pub(super) fn new(name: InterfaceName, cidr: Cidr) -> Self {
        let (view, next) = (View::default(), None);
        Self { name, cidr, view, next, detection_restarts: false, namespace_gone: false }
    }

    pub(super) fn state(&self) -> Option<State> {
        match &self.view.presence {
            _ if self.namespace_gone => Some(State::Backup),
            Presence::Unknown => None,
            Presence::Absent => Some(State::Backup),
            Presence::Present(_) if self.has_vip() => Some(State::Active),
            Presence::Present(interface) => {
                let had_room = self.view.places.had_room_for(interface.ifindex, self.cidr);
                (interface.is_listed && had_room).then_some(State::Backup)
            }
        }
    }

    /// Returns the VIP's places on the watched interface: usually one.
    fn places(&self) -> impl Iterator<Item = &Place> {
        let places = self.ifindex().map(|ifindex| self.view.places.on(ifindex));
        places.into_iter().flatten().filter(|place| place.cidr == self.cidr)
    }

    fn has_vip(&self) -> bool {
        self.places().any(|place| place.detection != Detection::Failed)
    }

    pub(super) fn cause(&self) -> Cause {
        match self.view.interface() {
            _ if self.namespace_gone => Cause::NamespaceGone,
            None => Cause::InterfaceGone,
            Some(_) if self.has_vip() => Cause::AddressAdded,
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
        let reachable = self.view.interface().filter(|_| !self.namespace_gone);
        let has = |flag| reachable.is_some_and(|interface| interface.flags.contains(flag));
        Some(match state {
            State::Active if has(LinkFlags::Up) => {
                self.places().find(|place| place.detection == Detection::Passed)?;
                HookState::Master
            }
            State::Backup if has(LinkFlags::Up | LinkFlags::Running) => HookState::Backup,
            _ => HookState::Fault,
        })
    }

    /// Returns whether an answer about the watched interface, on which the state depends, is missing or not in use yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.scope == Scope::Watched)
    }

    /// Returns the index of the watched interface, if that exists.
    pub(super) fn ifindex(&self) -> Option<u32> {
        self.view.ifindex()
    }

    pub(super) fn is_interface_absent(&self) -> bool {
        matches!(self.view.presence, Presence::Absent)
    }

    pub(super) fn has_name(&self, name: Option<InterfaceName>) -> bool {
        name == Some(self.name)
    }

    /// Returns why the watched interface cannot be used: it is down, or has no carrier.
    pub(super) fn down_cause(&self) -> Option<Cause> {
        self.view.interface().filter(|_| !self.namespace_gone)?.down_cause()
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.cidr.address()
    }

    pub(super) fn mac(&self) -> Option<Mac> {
        self.view.interface()?.mac
    }

    /// Returns the index of the link with a MAC of its own that sends for the watched interface: the one below, if that
    /// has a virtual MAC.
    pub(super) fn own_link(&self) -> Option<u32> {
        self.instance().map_or_else(|| self.ifindex(), |instance| instance.parent)
    }

    /// Returns the VRRP instance of the watched interface, if that has a virtual MAC.
    pub(super) fn instance(&self) -> Option<Instance> {
        let interface = self.view.interface()?;
        let vrid = virtual_router_id(interface.mac?)?;
        Some(Instance { vrid, parent: interface.parent })
    }

    /// Returns whether a frame can leave the watched interface.
    pub(super) fn has_carrier(&self) -> bool {
        self.view.interface().is_some_and(|interface| interface.down_cause().is_none())
    }

    /// Returns the place of the VIP itself.
    pub(super) fn place(&self) -> Option<&Place> {
        self.places().next()
    }

    /// Returns the key of the VIP, for an announcement.
    pub(super) fn key(&self) -> Option<AddressKey> {
        let Place { ifindex, cidr, peer, .. } = *self.place()?;
        Some(AddressKey::new(ifindex, cidr, peer))
    }

    /// Returns the view in use, and the next one, if there is one.
    fn views(&mut self) -> impl Iterator<Item = &mut View> {
        [&mut self.view].into_iter().chain(self.next.as_mut().map(|next| &mut next.view))
    }

    /// Handles an event of a link. The kernel starts the detection of IPv6 addresses again that it has kept while the link
    /// was down (`keep_addr_on_down`), and only its end has an event (`addrconf_permanent_addr` in `net/ipv6/addrconf.c`).
    pub(super) fn handle_link(&mut self, link: &Link) {
        let (name, is_ipv6) = (self.name, self.cidr.address().is_ipv6());
        let mut restarts = false;
        for view in self.views() {
            if view.handle_link(link, &name) && is_ipv6 {
                restarts |= view.places.restart_detection(link.ifindex);
            }
        }
        self.detection_restarts |= restarts;
    }

    /// Returns whether the watched interface has to be asked for, as the detection of the VIP may have started again.
    pub(super) fn take_detection_restart(&mut self) -> bool {
        take(&mut self.detection_restarts)
    }

    /// Handles the deletion of a link.
    pub(super) fn handle_link_gone(&mut self, ifindex: u32) {
        self.views().for_each(|view| view.handle_link_gone(ifindex));
    }

    pub(super) fn handle_namespace_gone(&mut self) {
        self.namespace_gone = true;
    }

    /// Handles the event of a new or changed address.
    pub(super) fn handle_address(&mut self, address: &Address) {
        if address.cidr.address() == self.ip() {
            let (watched, vip) = (self.ifindex(), self.cidr);
            for view in self.views() {
                view.places.add(address, view.ifindex().or(watched), vip);
            }
        }
    }

    /// Handles the deletion of an address. Returns whether all addresses have to be listed, to find places without room.
    pub(super) fn handle_address_gone(&mut self, address: &Address) -> bool {
        if address.cidr.address() != self.ip() {
            return false;
        }
        if let Some(next) = &mut self.next {
            next.view.places.remove(address);
        }
        self.view.places.remove(address)
    }

    /// Returns whether the VIP is on the interface, but has failed duplicate address detection.
    pub(super) fn has_duplicate(&self) -> bool {
        !self.namespace_gone && self.place().is_some() && !self.has_vip()
    }

    pub(super) fn is_vip(&self, address: &Address) -> bool {
        self.ifindex() == Some(address.ifindex) && self.cidr == address.cidr
    }

    /// Starts the next view.
    pub(super) fn begin(&mut self, scope: Scope) {
        self.next = Some(Next { view: View::default(), scope, answer: None });
    }

    /// Discards the next view, as its answer cannot be used.
    pub(super) fn discard(&mut self) {
        self.next = None;
    }

    /// Forgets the links of places, as lost events may have changed them.
    pub(super) fn forget_links(&mut self) {
        self.view.places.forget_links();
    }

    /// Returns the index of the watched interface in the next view, once the kernel has answered for it.
    pub(super) fn next_ifindex(&self) -> Option<u32> {
        self.next.as_ref()?.view.ifindex()
    }

    /// Handles an entry about the watched interface.
    pub(super) fn handle_link_entry(&mut self, link: &Link) {
        if let Some(next) = &mut self.next {
            next.view.handle_link(link, &self.name);
        }
    }

    /// Handles an entry about an address.
    pub(super) fn handle_address_entry(&mut self, address: &Address) {
        if address.cidr.address() == self.cidr.address()
            && let Some(Next { view, .. }) = &mut self.next
        {
            view.places.add(address, view.ifindex().or(self.view.ifindex()), self.cidr);
        }
    }

    /// Handles the end of the answer about the watched interface itself. Returns whether it exists.
    pub(super) fn handle_interface_answered(&mut self) -> bool {
        let Some(next) = &mut self.next else { return false };
        if let Presence::Present(_) = next.view.presence {
            return true;
        }
        next.view.presence = Presence::Absent;
        next.answer = Some(Answer::Complete);
        false
    }

    /// Handles the end of the answer about addresses.
    pub(super) fn handle_addresses_answered(&mut self, answer: Answer) {
        let Some(next) = &mut self.next else { return };
        next.answer = Some(answer);
        if let Presence::Present(interface) = &mut next.view.presence {
            interface.is_listed = answer == Answer::Complete;
        }
    }

    /// Returns whether the next view only waits for an empty queue.
    pub(super) fn is_answered(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.answer.is_some())
    }

    /// Puts the next view in use, as all events have been read that its answers may include. Each entry was there. Only a
    /// complete answer shows what was not. Returns its scope and answer.
    pub(super) fn settle(&mut self) -> Option<(Scope, Answer)> {
        let Next { view, scope, answer } = self.next.take_if(|next| next.answer.is_some())?;
        let answer = answer?;
        let before = self.view.places.clone();
        match scope {
            Scope::Watched => {
                let (before, after) = (self.view.interface(), view.interface());
                let is_same = before.map(|i| i.ifindex) == after.map(|i| i.ifindex);
                let was_listed = is_same && before.is_some_and(|interface| interface.is_listed);
                let ifindex = view.ifindex();
                self.view.presence = view.presence;
                if let Presence::Present(interface) = &mut self.view.presence {
                    if interface.is_listed {
                        self.view.places.remove_link(interface.ifindex);
                    }
                    interface.is_listed |= was_listed;
                    self.view.places.extend(view.places, ifindex, ifindex, self.cidr);
                }
            }
            Scope::All => {
                if answer == Answer::Complete {
                    self.view.places = Places::default();
                    if let Presence::Present(interface) = &mut self.view.presence {
                        interface.is_listed = true;
                    }
                }
                let watched = self.view.ifindex();
                self.view.places.extend(view.places, None, watched, self.cidr);
            }
        }
        self.view.places.keep_links(&before);
        Some((scope, answer))
    }

    /// Returns the other places of the VIP's address while this router is backup. None once the namespace is gone.
    fn others(&self) -> impl Iterator<Item = &Place> {
        let is_backup = self.state() == Some(State::Backup) && !self.namespace_gone;
        let watched = self.ifindex();
        let is_other = move |p: &&Place| watched != Some(p.ifindex) || p.cidr != self.cidr;
        self.view.places.iter().filter(move |place| is_backup && is_other(place))
    }

    /// Returns a place of the VIP's address that is probably a mistake, while this router is backup: the name of its
    /// interface and the address there. keepalived uses /32 or /128 for an address configured without a prefix length.
    ///
    /// An address on `lo`, or on a link that is down or has no ARP, is right for some load balancers.
    pub(super) fn misplaced(&self) -> Option<(InterfaceName, Cidr)> {
        self.find_other(|place| !self.may_be_right(place))
    }

    /// Returns a place of a link-local VIP's address on another interface, which may be right.
    pub(super) fn elsewhere(&self) -> Option<(InterfaceName, Cidr)> {
        self.find_other(|place| self.may_be_right(place))
    }

    /// Each link has link-local addresses of its own (RFC 4291 section 2.5.6), as gateways of all links often have the same.
    fn may_be_right(&self, place: &Place) -> bool {
        self.is_link_local() && self.ifindex() != Some(place.ifindex)
    }

    fn find_other(&self, is_meant: impl Fn(&Place) -> bool) -> Option<(InterfaceName, Cidr)> {
        let is_used = |place: &&Place| {
            let up = LinkFlags::Up | LinkFlags::Running;
            let unused = LinkFlags::Loopback | LinkFlags::Noarp;
            let flags = place.link.map_or(LinkFlags::empty(), |(_, flags)| flags);
            flags.contains(up) && !flags.intersects(unused)
        };
        let place = self.others().find(|place| is_meant(place) && is_used(place))?;
        place.link.map(|(name, _)| (name, place.cidr))
    }

    fn is_link_local(&self) -> bool {
        matches!(self.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Returns the index of a link to ask for, to say whether the VIP's address is misplaced there.
    pub(super) fn unknown_link(&self) -> Option<u32> {
        self.others().find(|place| place.link.is_none()).map(|place| place.ifindex)
    }

    /// Handles an entry about a link with places of the VIP's address.
    pub(super) fn handle_place_link(&mut self, link: &Link) {
        self.view.places.set_link(link);
    }

    /// Handles that such a link is gone: the event of its deletion has not been read yet.
    pub(super) fn handle_place_link_gone(&mut self, ifindex: u32) {
        self.view.places.remove_link(ifindex);
    }
}
