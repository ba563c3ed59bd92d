//! The links on which addresses can be announced.

use heapless::Vec;
use netlink_packet_route::link::LinkFlags;

use crate::wire::rtnl::{self, Mac};

/// The most links that are known at the same time.
const MAX_LINKS: usize = 1024;

/// An Ethernet on which stations learn each other's addresses by ARP or neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    pub(super) mac: Mac,
    /// It has carrier, and frames go through.
    pub(super) up: bool,
    /// It forwards IPv6.
    pub(super) router: bool,
    /// So that a carrier is missed that was lost and found before the kernel told of it.
    carrier_changes: u32,
    /// All its addresses are to be announced, and have yet to be listed.
    pub(super) unlisted: bool,
    seen: bool,
}

impl Link {
    /// None for a link that has no use for announcements: loopback, point-to-point, without ARP, or
    /// no Ethernet at all.
    fn new(link: &rtnl::Link) -> Option<Self> {
        let up = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;
        let alone = LinkFlags::Loopback | LinkFlags::Pointopoint | LinkFlags::Noarp;
        Some(Self {
            ifindex: link.ifindex,
            mac: link.mac.filter(|_| !link.flags.intersects(alone))?,
            up: link.flags.contains(up),
            router: link.ipv6_forwarding.unwrap_or(false),
            carrier_changes: link.carrier_changes,
            unlisted: false,
            seen: true,
        })
    }
}

/// There is no room for another link.
#[derive(Debug)]
pub(super) struct Full;

/// Every link that is known, by its index.
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

    /// Takes a new or changed link. If it has come up, or has another MAC, its addresses are to be
    /// announced; those of a link that is seen for the first time have an event each.
    pub(super) fn update(&mut self, link: &rtnl::Link) -> Result<(), Full> {
        let Some(new) = Link::new(link) else {
            self.remove(link.ifindex);
            return Ok(());
        };
        match self.get_mut(link.ifindex) {
            Some(known) => {
                let blinked = known.carrier_changes != new.carrier_changes;
                let moved = new.up && (!known.up || blinked || known.mac != new.mac);
                let router = link.ipv6_forwarding.unwrap_or(known.router);
                *known = Link { unlisted: known.unlisted || moved, router, ..new };
                Ok(())
            }
            None => self.0.push(new).map_err(|_| Full),
        }
    }

    pub(super) fn remove(&mut self, ifindex: u32) {
        self.0.retain(|link| link.ifindex != ifindex);
    }

    /// A dump of all links begins.
    pub(super) fn begin(&mut self) {
        for link in &mut self.0 {
            link.seen = false;
        }
    }

    /// The dump is complete: what it has not shown is gone. If `unseen`, any link may have addresses
    /// that nobody has told of.
    pub(super) fn end(&mut self, unseen: bool) {
        self.0.retain(|link| link.seen);
        for link in &mut self.0 {
            link.unlisted |= unseen;
        }
    }

    /// A link whose addresses are to be listed.
    pub(super) fn unlisted(&mut self) -> Option<&mut Link> {
        self.0.iter_mut().find(|link| link.up && link.unlisted)
    }
}
