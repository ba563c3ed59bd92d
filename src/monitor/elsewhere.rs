//! The VIP's address where it is not as told: on another interface, or with another prefix length, as keepalived gives it
//! /32 or /128 if it is told none. Only people are told, so every event of it has all addresses listed.

use super::Trouble;
use crate::wire::rtnl::Address;

#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// All addresses are to be listed.
    pub(super) search_due: bool,
    /// What the dump under way has shown first.
    found: Option<Trouble>,
    /// One of the places.
    pub(super) place: Option<Trouble>,
}

impl Elsewhere {
    pub(super) fn handle_listed(&mut self, address: &Address) {
        self.found.get_or_insert(Trouble::Misplaced(address.ifindex, address.cidr));
    }

    /// Returns where the address is, if that is news.
    pub(super) fn search_end(&mut self, is_complete: bool) -> Option<Trouble> {
        let found = self.found.take();
        if !is_complete {
            self.search_due = true;
            return None;
        }
        let before = core::mem::replace(&mut self.place, found);
        found.filter(|_| found != before)
    }
}
