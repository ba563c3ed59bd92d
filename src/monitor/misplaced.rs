//! The VIP's address in the wrong place: on another interface, or with another prefix length. keepalived uses /32 or
//! /128 for an address that is configured without. A misplaced VIP is logged, and changes no state.

use super::vip::Vip;
use crate::wire::cidr::Cidr;
use crate::wire::rtnl::Address;

#[derive(Debug, Default)]
pub(super) struct Misplaced {
    /// One of the places: the index of the interface, and the address there.
    location: Option<(u32, Cidr)>,
    /// The first place in the running dump of addresses, or in an event since its start.
    listed: Option<(u32, Cidr)>,
}

impl Misplaced {
    /// Handles an address that is new or changed, or `listed` by a dump.
    pub(super) fn handle_address(&mut self, address: &Address, listed: bool, vip: &Vip) {
        if is_misplaced(address, vip) {
            let location = (address.ifindex, address.cidr);
            self.listed.get_or_insert(location);
            if !listed {
                self.location.get_or_insert(location);
            }
        }
    }

    /// Handles the deletion of an address. Returns whether other places may remain, which a dump has to find.
    pub(super) fn handle_address_gone(&mut self, address: &Address, vip: &Vip) -> bool {
        self.location.take_if(|known| *known == (address.ifindex, address.cidr));
        is_misplaced(address, vip)
    }

    pub(super) fn addresses_begin(&mut self) {
        self.listed = None;
    }

    /// Handles the end of a complete dump of all addresses.
    pub(super) fn addresses_end(&mut self) {
        self.location = self.listed;
    }

    pub(super) fn location(&self) -> Option<(u32, Cidr)> {
        self.location
    }
}

fn is_misplaced(address: &Address, vip: &Vip) -> bool {
    vip.ip() == address.cidr.address() && !vip.is_vip(address)
}
