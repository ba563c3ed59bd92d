//! The links on which addresses can be announced.

use heapless::Vec;
use netlink_packet_route::link::LinkFlags;

use crate::monitor::split_brain::virtual_router;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{self, Mac};

const MAX_LINKS: usize = 1024;

/// An Ethernet on which stations learn each other's addresses by ARP or neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    pub(super) name: InterfaceName,
    pub(super) mac: Mac,
    /// It has carrier, and frames go through.
    pub(super) up: bool,
    pub(super) router: bool,
    /// Reveals a carrier flap that began and ended unseen.
    carrier_changes: u32,
    /// All its addresses are to be announced, and have yet to be listed.
    pub(super) needs_dump: bool,
    seen: bool,
}

impl Link {
    /// None if the message does not tell enough.
    fn new(link: &rtnl::Link) -> Option<Self> {
        Some(Self {
            ifindex: link.ifindex,
            name: link.name?,
            mac: link.mac?,
            up: is_up(link),
            router: link.ipv6_forwarding.unwrap_or(false),
            carrier_changes: link.carrier_changes.unwrap_or(0),
            needs_dump: false,
            seen: true,
        })
    }

    /// Whether the state of the VRRP instance `ours` counts here: a virtual MAC belongs to one instance, and nothing
    /// is known of the state of another.
    pub(super) fn belongs_to(&self, ours: Option<u8>) -> bool {
        let theirs = virtual_router(self.mac);
        ours.is_none() || theirs.is_none() || ours == theirs
    }

    /// Handles a change. If the link has come up, or has another MAC, its addresses are to be announced.
    fn change(&mut self, link: &rtnl::Link) {
        let mac = link.mac.unwrap_or(self.mac);
        let carrier_changes = link.carrier_changes.unwrap_or(self.carrier_changes);
        let blinked = carrier_changes != self.carrier_changes;
        let up = is_up(link);
        self.needs_dump |= up && (!self.up || blinked || mac != self.mac);
        (self.mac, self.carrier_changes, self.up) = (mac, carrier_changes, up);
        self.name = link.name.unwrap_or(self.name);
        self.router = link.ipv6_forwarding.unwrap_or(self.router);
        self.seen = true;
    }
}

fn is_up(link: &rtnl::Link) -> bool {
    link.flags.contains(LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp)
}

/// Not so loopback, point-to-point links, those without ARP, and what is no Ethernet at all.
fn has_use_for_announcements(link: &rtnl::Link) -> bool {
    let alone = LinkFlags::Loopback | LinkFlags::Pointopoint | LinkFlags::Noarp;
    link.ethernet && !link.flags.intersects(alone)
}

#[derive(Debug)]
pub(super) struct TableFull;

#[derive(Debug)]
pub(super) struct Links(Vec<Link, MAX_LINKS>);

impl Links {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn get(&self, ifindex: u32) -> Option<&Link> {
        self.0.iter().find(|link| link.ifindex == ifindex)
    }

    pub(super) fn get_mut(&mut self, ifindex: u32) -> Option<&mut Link> {
        self.0.iter_mut().find(|link| link.ifindex == ifindex)
    }

    /// Handles a new or changed link. The addresses of one that is seen for the first time have an event each.
    pub(super) fn update(&mut self, link: &rtnl::Link) -> Result<(), TableFull> {
        if !has_use_for_announcements(link) {
            self.remove(link.ifindex);
        } else if let Some(known) = self.get_mut(link.ifindex) {
            known.change(link);
        } else if let Some(new) = Link::new(link) {
            self.0.push(new).map_err(|_| TableFull)?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, ifindex: u32) {
        self.0.retain(|link| link.ifindex != ifindex);
    }

    pub(super) fn begin(&mut self) {
        for link in &mut self.0 {
            link.seen = false;
        }
    }

    /// Removes links that the dump has not listed. If `unseen`, any of the others may have addresses that
    /// nobody has told of: all are to be dumped.
    pub(super) fn end(&mut self, unseen: bool) {
        self.0.retain(|link| link.seen);
        for link in &mut self.0 {
            link.needs_dump |= unseen;
        }
    }

    /// What the `watched` one has, keepalived announces.
    pub(super) fn next_to_dump(&mut self, watched: Option<u32>) -> Option<&mut Link> {
        let is_other = |link: &Link| watched != Some(link.ifindex);
        self.0.iter_mut().find(|link| link.up && link.needs_dump && is_other(link))
    }
}
