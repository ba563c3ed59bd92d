//! The links on which addresses can be announced.

use heapless::Vec;
use netlink_packet_route::link::LinkFlags;

use crate::monitor::vrrp::{Instance, virtual_router_id};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{self, Mac};

const MAX_LINKS: usize = 1024;

/// An Ethernet link whose stations learn addresses by ARP or neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnnounceLink {
    pub(super) ifindex: u32,
    pub(super) name: InterfaceName,
    pub(super) mac: Mac,
    /// The link below, in the same namespace.
    parent: Option<u32>,
    /// It can send frames.
    pub(super) up: bool,
    /// It forwards IPv6.
    pub(super) router: bool,
    /// The kernel's counter, which reveals a carrier flap between two events.
    carrier_changes: u32,
    /// Its addresses are to be listed and announced, because it came up or got another MAC.
    relist: bool,
    /// The current answer, or an event since its start, has shown it.
    seen: bool,
}

/// What a message about a link changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkChange {
    /// Nothing for the frames that are due.
    Known,
    /// Waiting addresses may have this link.
    New,
    /// The link can send no frames, or has come up anew or with another MAC.
    Restart,
    /// Nothing, as a new link has no room.
    TableFull,
}

impl AnnounceLink {
    /// Returns the link of a message. None: the name or MAC is missing.
    fn new(link: &rtnl::Link) -> Option<Self> {
        Some(Self {
            ifindex: link.ifindex,
            name: link.name?,
            mac: link.mac?,
            parent: link.parent,
            up: is_up(link),
            router: link.ipv6_forwarding.unwrap_or(false),
            carrier_changes: link.carrier_changes.unwrap_or(0),
            relist: false,
            seen: true,
        })
    }

    /// Returns whether the state decides about this link. A link with the virtual MAC of another VRRP instance than that of
    /// the `watched` one depends on the state of that, which is unknown.
    pub(super) fn belongs_to(&self, watched: Option<u32>, ours: Option<Instance>) -> bool {
        let Some(vrid) = virtual_router_id(self.mac) else { return true };
        let is_same = self.parent.is_some() && ours == Some(Instance { vrid, parent: self.parent });
        is_same || watched == Some(self.ifindex)
    }

    /// Handles a change. Returns whether to announce the addresses, because the link has come up or has another MAC.
    fn change(&mut self, link: &rtnl::Link) -> bool {
        let mac = link.mac.unwrap_or(self.mac);
        let carrier_changes = link.carrier_changes.unwrap_or(self.carrier_changes);
        let blinked = carrier_changes != self.carrier_changes;
        let up = is_up(link);
        let is_new = up && (!self.up || blinked || mac != self.mac);
        (self.mac, self.carrier_changes, self.up) = (mac, carrier_changes, up);
        self.parent = link.parent.or(self.parent);
        self.name = link.name.unwrap_or(self.name);
        self.router = link.ipv6_forwarding.unwrap_or(self.router);
        self.seen = true;
        is_new
    }
}

fn is_up(link: &rtnl::Link) -> bool {
    link.flags.contains(LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp)
}

/// Returns whether stations on the link learn addresses: not on loopback, point-to-point links, and links without ARP.
fn has_use_for_announcements(link: &rtnl::Link) -> bool {
    let alone = LinkFlags::Loopback | LinkFlags::Pointopoint | LinkFlags::Noarp;
    link.ethernet && !link.flags.intersects(alone)
}

#[derive(Debug)]
pub(super) struct Links(Vec<AnnounceLink, MAX_LINKS>);

impl Links {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn get(&self, ifindex: u32) -> Option<&AnnounceLink> {
        self.0.iter().find(|link| link.ifindex == ifindex)
    }

    fn get_mut(&mut self, ifindex: u32) -> Option<&mut AnnounceLink> {
        self.0.iter_mut().find(|link| link.ifindex == ifindex)
    }

    /// Handles a new or changed link. `announces`: if it has come up or has another MAC, its addresses are listed. Those of
    /// a new link have an event each.
    pub(super) fn update(&mut self, link: &rtnl::Link, announces: bool) -> LinkChange {
        if !has_use_for_announcements(link) {
            self.remove(link.ifindex);
            return LinkChange::Restart;
        }
        if let Some(known) = self.get_mut(link.ifindex) {
            let restarts = known.change(link);
            known.relist |= restarts && announces;
            let goes_on = known.up && !restarts;
            return if goes_on { LinkChange::Known } else { LinkChange::Restart };
        }
        let Some(new) = AnnounceLink::new(link) else { return LinkChange::Known };
        if self.0.push(new).is_ok() { LinkChange::New } else { LinkChange::TableFull }
    }

    /// Sets whether a link forwards IPv6.
    pub(super) fn set_router(&mut self, ifindex: u32, on: bool) {
        if let Some(link) = self.get_mut(ifindex) {
            link.router = on;
        }
    }

    pub(super) fn remove(&mut self, ifindex: u32) {
        self.0.retain(|link| link.ifindex != ifindex);
    }

    pub(super) fn begin(&mut self) {
        self.0.iter_mut().for_each(|link| link.seen = false);
    }

    /// Removes the links that the answer has not shown.
    pub(super) fn end(&mut self) {
        self.0.retain(|link| link.seen);
    }

    /// Returns the next link whose addresses are to be listed, apart from the `watched` one.
    pub(super) fn relisted(&self, watched: Option<u32>) -> Option<u32> {
        let is_wanted =
            |link: &&AnnounceLink| link.relist && link.up && watched != Some(link.ifindex);
        self.0.iter().find(is_wanted).map(|link| link.ifindex)
    }

    /// Lists no link's addresses: nothing is announced, or all are listed.
    pub(super) fn cancel_relists(&mut self) {
        self.0.iter_mut().for_each(|link| link.relist = false);
    }

    pub(super) fn end_relist(&mut self, ifindex: u32) {
        if let Some(link) = self.get_mut(ifindex) {
            link.relist = false;
        }
    }
}
