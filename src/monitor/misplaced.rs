//! The VIP's address in the wrong place: on another interface, or with another prefix length. keepalived uses /32 or
//! /128 for an address configured without a prefix length. A misplaced VIP is logged, and changes no state.

use core::net::IpAddr;

use super::vip::Vip;
use crate::wire::cidr::Cidr;
use crate::wire::rtnl::Address;

#[derive(Debug, Default)]
pub(super) struct Misplaced {
    /// A current location: the index of the interface, and the address there.
    pub(super) location: Option<(u32, Cidr)>,
    /// The first location in the running dump of addresses, or in an event since its start.
    listed: Option<(u32, Cidr)>,
    /// A misplaced address was deleted since the start of the running dump, which may list it. Another dump follows.
    is_outdated: bool,
}

impl Misplaced {
    /// Handles a new or changed address, or one that is `listed` by the running dump.
    pub(super) fn handle_address(&mut self, address: &Address, listed: bool, vip: &Vip) {
        if is_misplaced(address, vip) {
            let location = (address.ifindex, address.cidr);
            self.listed.get_or_insert(location);
            if !listed {
                self.location.get_or_insert(location);
            }
        }
    }

    /// Handles the deletion of an address. Returns whether a dump has to find another location.
    pub(super) fn handle_address_gone(&mut self, address: &Address, vip: &Vip) -> bool {
        self.location.take_if(|known| *known == (address.ifindex, address.cidr));
        let is_misplaced = is_misplaced(address, vip);
        self.is_outdated |= is_misplaced;
        is_misplaced
    }

    /// Handles the start of a dump of addresses. One of the watched interface alone follows an interrupted one: nothing is
    /// known of the other interfaces until the next one of all.
    pub(super) fn addresses_begin(&mut self, alone: bool) {
        (self.listed, self.is_outdated) = (None, false);
        self.location.take_if(|_| alone);
    }

    /// Handles the end of a complete dump of all addresses.
    pub(super) fn addresses_end(&mut self) {
        if !self.is_outdated {
            self.location = self.listed;
        }
    }
}

/// Returns whether the address is the VIP's, but not where that is expected. Each link has link-local addresses of its own
/// (RFC 4291 section 2.5.6), as gateways of all links often have the same.
fn is_misplaced(address: &Address, vip: &Vip) -> bool {
    let may_be_on_others = matches!(vip.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    let is_elsewhere = vip.ifindex() != Some(address.ifindex);
    vip.ip() == address.cidr.address()
        && !vip.is_vip(address)
        && !(may_be_on_others && is_elsewhere)
}
