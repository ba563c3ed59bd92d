//! VRRP instances with a virtual MAC, which moves with the master (RFC 9568 section 7.3).

use crate::wire::rtnl::Mac;

/// A VRRP instance, as the link of its virtual MAC shows it. Its number is its own only on the segment of the link below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// See [`virtual_router_id`].
    pub(super) vrid: [u8; 2],
    /// The index of the link below. None: that is in another namespace.
    pub(super) parent: Option<u32>,
}

/// Returns what a virtual MAC says of its instance: 1 for IPv4 or 2 for IPv6, and its number.
pub(super) fn virtual_router_id(mac: Mac) -> Option<[u8; 2]> {
    match mac {
        [0, 0, 0x5e, 0, family @ (1 | 2), instance] => Some([family, instance]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_macs_are_not_virtual() {
        let similar = [[0, 0, 0x5e, 0, 3, 1], [0, 0, 0x5e, 1, 1, 1], [2, 0, 0x5e, 0, 1, 1]];
        assert_eq!(similar.map(virtual_router_id), [None; 3]);
    }
}
