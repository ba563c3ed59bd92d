//! Announcing addresses: when which frame goes out on which interface.
//!
//! An address that appears on any interface but the watched one is announced in rounds, so that its neighbours
//! update their caches: by an ARP request and an ARP reply (RFC 5227 section 3) or an unsolicited neighbour
//! advertisement (RFC 4861 section 7.2.6). Linux ignores an ARP packet within a second of the last change
//! (`locktime` in `arp_process`, `net/ipv4/arp.c`), hence the time between rounds.
//!
//! Only the active router announces. With a virtual MAC keepalived has addresses on a backup too, and a
//! frame from there would have the switches send that one what is meant for the active router. So what
//! appears on a backup waits until that is the active one.
//!
//! ```text
//!      detection pending (RFC 4862)      this router is backup      this router is active
//!                  │                               │                          │
//!                  ▼                               ▼                          ▼
//!           ┌─────────────┐  it has ended,  ┌───────────┐    active    ┌─────────────┐
//!           │  Tentative  │ ──────────────▶ │  Waiting  │ ───────────▶ │ Announcing  │ ──┐ a round
//!           │             │  on a backup    │           │ ◀─────────── │             │ ◀─┘
//!           └─────────────┘                 └───────────┘    backup    └─────────────┘
//!              │       │ it has ended, on the active router                 ▲   │ no round is left
//!              │       └────────────────────────────────────────────────────┘   ▼
//!              ▼ it has failed                                               (removed)
//!          (removed)
//! ```
//!
//! An address that is gone, or whose link is gone or down, is removed from any state.

mod links;
mod pending;

pub use pending::{AddressKey, AnnounceTiming, Announcement, FrameKind, Tables};

use core::num::NonZeroU8;

use netlink_packet_route::address::AddressFlags;

use super::journal::Journal;
use super::split_brain::virtual_router;
use super::{Action, Counters, Dump, Instant, LogEvent};
use crate::errno::Errno;
use crate::wire::rtnl::{Address, Body, Link, Mac};
use links::TableFull;
use pending::{PendingAnnouncement, Progress};

#[derive(Debug)]
pub(super) struct Announcer<'a> {
    timing: AnnounceTiming,
    active: bool,
    /// The VRRP instance that this is about, if it has a virtual MAC.
    instance: Option<u8>,
    /// The index of the watched interface.
    watched: Option<u32>,
    tables: &'a mut Tables,
    /// There has been a dump of all links.
    links_known: bool,
    /// Events were lost, and no dump of all links has begun since.
    lost: bool,
    /// Addresses may have appeared unseen: after the next complete dump of all links they are listed.
    unseen: bool,
    /// No entry is due before this; none if none ever is.
    next_due: Option<Instant>,
    not_before: Instant,
    /// Where the search for an entry that is due goes on.
    cursor: usize,
}

impl<'a> Announcer<'a> {
    pub(super) fn new(timing: AnnounceTiming, tables: &'a mut Tables) -> Self {
        Self {
            timing,
            active: false,
            instance: None,
            watched: None,
            tables,
            links_known: false,
            lost: false,
            unseen: false,
            next_due: None,
            not_before: Instant::ZERO,
            cursor: 0,
        }
    }

    /// Handles a change of the state, or of the watched interface's MAC. What waits for the active state begins
    /// at once. Rounds that its end cuts off are all repeated in the next.
    pub(super) fn handle_role(&mut self, active: bool, watched: Option<Mac>, now: Instant) {
        let instance = watched.and_then(virtual_router);
        if (active, instance) == (self.active, self.instance) {
            return;
        }
        (self.active, self.instance) = (active, instance);
        self.next_due = None;
        let beginning = self.beginning();
        for entry in &mut self.tables.entries {
            match entry.progress {
                Progress::Waiting => (entry.progress, entry.due) = (beginning, now),
                Progress::Announcing { .. } if !active => entry.progress = Progress::Waiting,
                _ => {}
            }
            if entry.progress.is_under_way() {
                self.next_due = Some(now);
            }
        }
    }

    /// Follows the watched interface: keepalived itself announces what it puts there.
    pub(super) fn handle_watched(&mut self, watched: Option<u32>) {
        let last = core::mem::replace(&mut self.watched, watched);
        if let Some(link) = last.and_then(|ifindex| self.tables.links.get_mut(ifindex)) {
            link.needs_dump = false;
        }
        self.drop_entries(|address| Some(address.ifindex) == watched);
    }

    /// The first stage of an address that is not tentative.
    fn beginning(&self) -> Progress {
        if self.active {
            Progress::Announcing { rounds: self.timing.repeat, replying: false }
        } else {
            Progress::Waiting
        }
    }

    /// Handles a change, or what a dump lists.
    pub(super) fn handle_link_or_address(
        &mut self,
        body: &Body,
        dump: Option<Dump>,
        journal: &mut Journal,
        now: Instant,
    ) {
        match body {
            Body::NewAddress(address) if self.watched != Some(address.ifindex) => {
                let is_listed = match dump {
                    None => false,
                    // A kernel that does not filter lists those of all links.
                    Some(dump) if dump != Dump::Others(address.ifindex) => return,
                    Some(_) => true,
                };
                if let Err(TableFull) = self.handle_address(address, is_listed, now) {
                    journal.counters.unannounced += 1;
                    let total = journal.counters.unannounced;
                    journal.log_limited(|_| LogEvent::TooManyAddresses { total }, now);
                }
            }
            Body::DelAddress(address) => self.handle_address_gone(address),
            Body::NewLink(link) => {
                if let Err(TableFull) = self.handle_link(link) {
                    journal.counters.ignored_links += 1;
                    let ignored = journal.counters.ignored_links;
                    journal.log_limited(|_| LogEvent::TooManyLinks { ignored }, now);
                }
            }
            Body::DelLink(link) => self.handle_link_gone(link.ifindex),
            Body::Ipv6Forwarding { ifindex, on } => {
                if let Some(link) = self.tables.links.get_mut(*ifindex) {
                    link.router = *on;
                }
            }
            Body::NewAddress(_) | Body::Done(_) | Body::Error(_) | Body::Other => {}
        }
    }

    fn handle_link(&mut self, link: &Link) -> Result<(), TableFull> {
        let updated = self.tables.links.update(link);
        // When it comes up again, its addresses are dumped. Before the first dump of all links it may be up
        // without being known, as a wireless event does not say enough.
        if self.tables.links.get(link.ifindex).map_or(self.links_known, |link| !link.up) {
            self.drop_entries(|address| address.ifindex == link.ifindex);
        }
        updated
    }

    fn handle_link_gone(&mut self, ifindex: u32) {
        self.tables.links.remove(ifindex);
        self.drop_entries(|address| address.ifindex == ifindex);
    }

    /// Handles an address that is new or changed, or `listed` by a dump of its link's addresses.
    fn handle_address(
        &mut self,
        address: &Address,
        listed: bool,
        now: Instant,
    ) -> Result<(), TableFull> {
        let Address { ifindex, cidr, flags, refreshed, .. } = *address;
        let (ip, key) = (cidr.address(), AddressKey::from(address));
        if flags.contains(AddressFlags::Dadfailed) {
            self.drop_entries(|address| *address == key);
            return Ok(());
        }
        let usable = !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
        // At the very start an event may be earlier than the news of its link.
        let up = self.tables.links.get(ifindex).map_or(!self.links_known, |link| link.up);
        if !usable || !up {
            return Ok(());
        }
        let undecided = flags.intersects(AddressFlags::Tentative | AddressFlags::Optimistic);
        let progress = if undecided { Progress::Tentative } else { self.beginning() };
        let entries = &mut self.tables.entries;
        match entries.iter_mut().find(|entry| entry.address == key) {
            // Its rounds go on. They are repeated from the first if duplicate address detection has begun, if a
            // dump lists what is to be announced again, or if the dump under way has not shown the address yet:
            // it may have been removed and added again.
            Some(PendingAnnouncement {
                progress: Progress::Announcing { .. }, seen: true, ..
            }) if !undecided && !listed => return Ok(()),
            // An event that came before may be newer: see `Resync::note_overtaken`.
            Some(PendingAnnouncement { seen: true, .. }) if listed => return Ok(()),
            Some(entry) => (entry.progress, entry.due, entry.seen) = (progress, now, true),
            None if refreshed && !listed && !undecided => return Ok(()),
            None => {
                let new = PendingAnnouncement { address: key, progress, due: now, seen: true };
                entries.push(new).map_err(|_| TableFull)?;
            }
        }
        if progress.is_under_way() {
            self.next_due = Some(self.next_due.map_or(now, |due| due.min(now)));
        }
        Ok(())
    }

    /// Has an address of the watched interface announced, if that is up: others have claimed it meanwhile.
    pub(super) fn announce_again(&mut self, address: AddressKey, now: Instant) {
        self.drop_entries(|known| *known == address);
        if self.tables.links.get(address.ifindex).is_some_and(|link| link.up) {
            let (progress, due, seen) = (self.beginning(), now, true);
            // Without room, those before it are many.
            let _ = self.tables.entries.push(PendingAnnouncement { address, progress, due, seen });
            self.next_due = Some(now);
        }
    }

    fn handle_address_gone(&mut self, address: &Address) {
        let key = AddressKey::from(address);
        self.drop_entries(|address| *address == key);
    }

    fn drop_entries(&mut self, which: impl Fn(&AddressKey) -> bool) {
        self.tables.entries.retain(|entry| !which(&entry.address));
    }

    /// Events were lost: after the next dump of all links, all addresses are announced again. The one
    /// under way may have been answered before.
    pub(super) fn handle_loss(&mut self) {
        self.lost = true;
    }

    pub(super) fn links_begin(&mut self, counters: &mut Counters) {
        self.unseen |= core::mem::take(&mut self.lost);
        // They are counted anew.
        counters.ignored_links = 0;
        self.tables.links.begin();
    }

    pub(super) fn links_end(&mut self) {
        self.links_known = true;
        self.tables.links.end(core::mem::take(&mut self.unseen));
        let Tables { links, entries } = &mut *self.tables;
        entries.retain(|entry| links.get(entry.address.ifindex).is_some_and(|link| link.up));
    }

    pub(super) fn needs_dump(&mut self) -> bool {
        self.tables.links.next_to_dump(self.watched).is_some()
    }

    /// The link whose addresses are to be dumped now.
    pub(super) fn listing_begin(&mut self) -> Option<u32> {
        let link = self.tables.links.next_to_dump(self.watched)?;
        link.needs_dump = false;
        let ifindex = link.ifindex;
        for entry in &mut self.tables.entries {
            entry.seen &= entry.address.ifindex != ifindex;
        }
        Some(ifindex)
    }

    /// That dump has ended, well or not. What it has not shown is gone.
    pub(super) fn listing_end(&mut self, ifindex: u32, complete: bool) {
        if complete {
            let is_gone = |e: &PendingAnnouncement| e.address.ifindex == ifindex && !e.seen;
            self.tables.entries.retain(|entry| !is_gone(entry));
        } else if let Some(link) = self.tables.links.get_mut(ifindex) {
            link.needs_dump = true;
        }
    }

    /// Sends a frame, the result of which goes to [`Announcer::handle_sent`].
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if now < self.not_before || self.next_due.is_none_or(|due| now < due) {
            return None;
        }
        while let Some(index) = self.find_due(now) {
            self.cursor = index;
            let Tables { links, entries } = &mut *self.tables;
            let entry = entries.get_mut(index)?;
            match links.get(entry.address.ifindex) {
                None => {
                    entries.swap_remove(index);
                }
                // Until the MAC here or there is another.
                Some(link) if !link.belongs_to(self.instance) => entry.progress = Progress::Waiting,
                Some(link) => return entry.frame(link).map(Action::SendFrame),
            }
        }
        let announcing = |entry: &&PendingAnnouncement| entry.progress.is_under_way();
        self.next_due = self.tables.entries.iter().filter(announcing).map(|entry| entry.due).min();
        None
    }

    fn find_due(&self, now: Instant) -> Option<usize> {
        let entries = &self.tables.entries;
        let is_due = |index: &usize| {
            entries.get(*index).is_some_and(|e| e.progress.is_under_way() && e.due <= now)
        };
        (self.cursor..entries.len()).chain(0..self.cursor).find(is_due)
    }

    /// Handles that a frame of an address was sent, or could not be: the rounds to come are its retries.
    pub(super) fn handle_sent(
        &mut self,
        address: AddressKey,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        if let Err(errno) = result {
            journal.counters.announcement_failures += 1;
            if let Some(links::Link { name: interface, .. }) =
                self.tables.links.get(address.ifindex)
            {
                let event = |count| LogEvent::NotAnnounced { interface: *interface, errno, count };
                journal.log_limited(event, now);
            }
        } else {
            journal.counters.announcements += 1;
        }
        self.advance(address, now);
    }

    fn advance(&mut self, address: AddressKey, now: Instant) {
        // Where the search has stopped, unless nobody waits for this result.
        let entry = self.tables.entries.get_mut(self.cursor);
        let Some(entry) = entry.filter(|entry| entry.address == address) else { return };
        let Progress::Announcing { rounds, replying } = &mut entry.progress else { return };
        if address.ip.is_ipv4() && !*replying {
            // The reply follows the request at once.
            *replying = true;
            return;
        }
        self.not_before = now + self.timing.interval;
        let Some(left) = NonZeroU8::new(rounds.get() - 1) else {
            self.tables.entries.swap_remove(self.cursor);
            return;
        };
        (*rounds, *replying) = (left, false);
        entry.due = now + self.timing.delay;
        self.cursor += 1;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_due.map(|due| due.max(self.not_before))
    }
}

#[cfg(test)]
mod tests;
