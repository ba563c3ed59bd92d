//! The MACs of our own interfaces, to tell them from other stations.

use heapless::Vec;

use crate::wire::rtnl::{Link, Mac};

/// The most that are known at the same time. The first are kept, among which are the physical ones.
const MAX_MACS: usize = 64;

#[derive(Debug)]
struct Own {
    ifindex: u32,
    mac: Mac,
    seen: bool,
}

/// The MAC of every Ethernet interface, by its index.
#[derive(Debug, Default)]
pub(super) struct OwnMacs(Vec<Own, MAX_MACS>);

impl OwnMacs {
    pub(super) fn contains(&self, mac: Mac) -> bool {
        self.0.iter().any(|own| own.mac == mac)
    }

    /// Handles a new or changed link.
    pub(super) fn on_link(&mut self, link: &Link) {
        let ifindex = link.ifindex;
        // Not every message mentions it.
        let Some(mac) = link.mac else { return };
        let own = Own { ifindex, mac, seen: true };
        match self.0.iter_mut().find(|own| own.ifindex == ifindex) {
            Some(known) => *known = own,
            // Without room its claims count as another station's.
            None => drop(self.0.push(own)),
        }
    }

    /// Handles a link that is gone.
    pub(super) fn on_link_gone(&mut self, ifindex: u32) {
        self.0.retain(|own| own.ifindex != ifindex);
    }

    /// A dump of all links begins.
    pub(super) fn links_begin(&mut self) {
        for own in &mut self.0 {
            own.seen = false;
        }
    }

    /// The dump is complete: what it has not shown is gone.
    pub(super) fn links_end(&mut self) {
        self.0.retain(|own| own.seen);
    }
}

/// The VRRP instance of a virtual MAC, be it for IPv4 or IPv6 (RFC 9568 section 7.3), which moves with the master,
/// unlike a station's.
pub(super) fn virtual_router(mac: Mac) -> Option<u8> {
    match mac {
        [0, 0, 0x5e, 0, 1 | 2, instance] => Some(instance),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkFlags;

    fn link(ifindex: u32, mac: Option<Mac>) -> Link {
        Link {
            ifindex,
            name: None,
            flags: LinkFlags::Up,
            mac,
            carrier_changes: Some(0),
            ethernet: mac.is_some(),
            ipv6_forwarding: None,
        }
    }

    #[test]
    fn each_interface_has_its_present_mac() {
        let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut own = OwnMacs::default();
        own.on_link(&link(1, None));
        own.on_link(&link(2, Some(a)));
        own.on_link(&link(3, Some(a)));
        own.on_link(&link(2, Some(b)));
        assert!(own.contains(a) && own.contains(b));
        own.on_link_gone(3);
        assert!(!own.contains(a) && own.contains(b));
        own.links_begin();
        own.on_link(&link(4, Some(a)));
        own.links_end();
        assert!(own.contains(a) && !own.contains(b), "not shown, so gone");
    }

    #[test]
    fn without_room_the_first_are_kept() {
        let mut own = OwnMacs::default();
        for n in 0..=64 {
            own.on_link(&link(n.into(), Some([2, 0, 0, 0, 0, n])));
        }
        assert!((0..64).all(|n| own.contains([2, 0, 0, 0, 0, n])));
        assert!(!own.contains([2, 0, 0, 0, 0, 64]));
    }

    #[test]
    fn virtual_macs_are_those_of_vrrp() {
        for (mac, expected) in [
            ([0, 0, 0x5e, 0, 1, 0], Some(0)),
            ([0, 0, 0x5e, 0, 2, 255], Some(255)),
            ([0, 0, 0x5e, 0, 3, 1], None),
            ([0, 0, 0x5e, 1, 1, 1], None),
            ([2, 0, 0x5e, 0, 1, 1], None),
        ] {
            assert_eq!(virtual_router(mac), expected, "{mac:?}");
        }
    }
}
