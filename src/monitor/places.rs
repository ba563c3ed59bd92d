//! The places of the VIP's address: the interfaces that have it, with any prefix length.

use core::net::IpAddr;

use heapless::Vec;
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Address, Link};

/// Most namespaces have one place. `fe80::1` may be on hundreds of links.
const MAX_PLACES: usize = 16;

/// One configuration of the VIP's address.
///
/// In IPv4 an interface may have it several times, with different prefix lengths or peers. In IPv6 it has each address
/// once, whose prefix length and peer may change in place.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) ifindex: u32,
    pub(super) cidr: Cidr,
    pub(super) peer: IpAddr,
    /// When it was added, as in [`Address`].
    pub(super) created: u32,
    pub(super) detection: Detection,
    /// The name and the flags of the interface. None: unknown.
    pub(super) link: Option<(InterfaceName, LinkFlags)>,
}

/// Duplicate address detection (RFC 4862 section 5.4) of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// No program can bind to it yet (`ipv6_chk_addr_and_flags` in `net/ipv6/addrconf.c`).
    Running,
    Passed,
    /// The kernel does not use it: another station has it.
    Failed,
}

impl Detection {
    fn of(flags: AddressFlags) -> Self {
        let has = |flag| flags.contains(flag);
        if has(AddressFlags::Dadfailed) {
            Self::Failed
        } else if has(AddressFlags::Tentative) && !has(AddressFlags::Optimistic) {
            Self::Running
        } else {
            Self::Passed
        }
    }
}

impl Place {
    fn of(address: &Address) -> Self {
        let Address { ifindex, cidr, peer, flags, created, .. } = *address;
        Self { ifindex, cidr, peer, created, detection: Detection::of(flags), link: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_address =
            other.cidr.address().is_ipv6() || (self.cidr, self.peer) == (other.cidr, other.peer);
        self.ifindex == other.ifindex && is_same_address
    }

    fn is_vip(&self, watched: Option<u32>, vip: Cidr) -> bool {
        watched == Some(self.ifindex) && self.cidr == vip
    }

    /// Returns how much it is needed: the VIP itself most, and then what is beside it.
    fn rank(&self, watched: Option<u32>, vip: Cidr) -> (bool, bool) {
        (self.is_vip(watched, vip), watched == Some(self.ifindex))
    }
}

/// The places that are known. The caller passes in only addresses equal to the VIP's.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    list: Vec<Place, MAX_PLACES>,
    /// Some had no room.
    overflowed: bool,
}

impl Places {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.list.iter()
    }

    pub(super) fn on(&self, ifindex: u32) -> impl Iterator<Item = &Place> {
        self.list.iter().filter(move |place| place.ifindex == ifindex)
    }

    fn on_mut(&mut self, ifindex: u32) -> impl Iterator<Item = &mut Place> {
        self.list.iter_mut().filter(move |place| place.ifindex == ifindex)
    }

    /// Adds or updates the place of an address. Without room, the VIP itself comes first, and then the watched interface.
    pub(super) fn add(&mut self, address: &Address, watched: Option<u32>, vip: Cidr) {
        self.insert(Place::of(address), watched, vip);
    }

    fn insert(&mut self, new: Place, watched: Option<u32>, vip: Cidr) {
        if let Some(known) = self.list.iter_mut().find(|known| known.is_same(&new)) {
            let link = known.link.take();
            *known = Place { link: new.link.or(link), ..new };
            return;
        }
        let Err(new) = self.list.push(new) else { return };
        self.overflowed = true;
        let rank = |place: &Place| place.rank(watched, vip);
        let least = self.list.iter_mut().min_by_key(|place| rank(place));
        if let Some(least) = least.filter(|least| rank(least) < rank(&new)) {
            *least = new;
        }
    }

    /// Adds the places of another set that are on this interface, or all.
    pub(super) fn extend(
        &mut self,
        others: Self,
        only: Option<u32>,
        watched: Option<u32>,
        vip: Cidr,
    ) {
        self.overflowed |= others.overflowed;
        let is_meant = |place: &Place| only.is_none_or(|only| only == place.ifindex);
        for place in others.list.into_iter().filter(is_meant) {
            self.insert(place, watched, vip);
        }
    }

    pub(super) fn forget_links(&mut self) {
        self.list.iter_mut().for_each(|place| place.link = None);
    }

    /// Keeps what was known of the links of the places.
    pub(super) fn keep_links(&mut self, before: &Self) {
        for place in self.list.iter_mut().filter(|place| place.link.is_none()) {
            place.link = before.on(place.ifindex).find_map(|known| known.link);
        }
    }

    /// Returns whether no place of the VIP itself can be missing: it would have taken the room of any other place that
    /// is left.
    pub(super) fn had_room_for(&self, watched: u32, vip: Cidr) -> bool {
        !self.overflowed || !self.list.iter().all(|place| place.is_vip(Some(watched), vip))
    }

    /// Removes the place of an address. Returns whether places that had no room may take its room.
    pub(super) fn remove(&mut self, address: &Address) -> bool {
        let (gone, full) = (Place::of(address), self.list.is_full());
        self.list.retain(|known| !known.is_same(&gone));
        self.overflowed && full && !self.list.is_full()
    }

    pub(super) fn remove_link(&mut self, ifindex: u32) {
        self.list.retain(|place| place.ifindex != ifindex);
    }

    /// Lets duplicate address detection run again on a link. Returns whether it had passed for any address there.
    pub(super) fn restart_detection(&mut self, ifindex: u32) -> bool {
        let has_passed = |place: &&mut Place| place.detection == Detection::Passed;
        let mut restarts = false;
        for place in self.on_mut(ifindex).filter(has_passed) {
            (place.detection, restarts) = (Detection::Running, true);
        }
        restarts
    }

    /// Keeps the name and flags of a link that has places.
    pub(super) fn set_link(&mut self, link: &Link) {
        for place in self.on_mut(link.ifindex) {
            let name = link.name.or(place.link.map(|(name, _)| name));
            place.link = name.map(|name| (name, link.flags));
        }
    }
}
