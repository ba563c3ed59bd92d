//! The VIP's address where it is not as told: on another interface, or with another prefix length, as keepalived gives it
//! /32 or /128 if it is told none. Only people are told, so every event of it has all addresses listed.

use crate::wire::cidr::Cidr;
use crate::wire::rtnl::Address;

/// The index of an interface, and the address there.
type Place = (u32, Cidr);

#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    search_due: bool,
    /// What the dump under way has shown first.
    found: Option<Place>,
    place: Option<Place>,
}

impl Elsewhere {
    /// Has all addresses listed.
    pub(super) fn search(&mut self) {
        self.search_due = true;
    }

    pub(super) fn is_search_due(&self) -> bool {
        self.search_due
    }

    pub(super) fn search_begin(&mut self) {
        (self.search_due, self.found) = (false, None);
    }

    pub(super) fn handle_listed(&mut self, address: &Address) {
        self.found.get_or_insert((address.ifindex, address.cidr));
    }

    /// Returns where the address is, if that is news.
    pub(super) fn search_end(&mut self, is_complete: bool) -> Option<Place> {
        self.search_due |= !is_complete;
        let before = self.place;
        if is_complete {
            self.place = self.found;
        }
        self.place.filter(|_| self.place != before)
    }

    /// One of the places.
    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }
}
