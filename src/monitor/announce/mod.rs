//! Announcements: the frames for new addresses on each interface, and their times.
//!
//! An address that appears on an interface other than the watched one is announced in rounds, so that its neighbours
//! update their caches. A round is an ARP request and an ARP reply (RFC 5227 section 3) or an unsolicited neighbour
//! advertisement (RFC 4861 section 7.2.6). Linux ignores an ARP packet within a second of the last change
//! (`locktime` in `arp_process`, `net/ipv4/arp.c`), hence the time between rounds.
//!
//! Only the active router announces. With a virtual MAC keepalived has addresses on a backup too, and a frame from
//! there would divert the active router's traffic. So a new address on a backup waits until that is active.
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

mod frames;
mod links;
mod pending;

pub use pending::{AddressKey, AnnounceTiming, Announcement, FrameKind, Tables};

use netlink_packet_route::address::AddressFlags;

use super::journal::Journal;
use super::split_brain::virtual_router;
use super::{Dump, Instant, LimitedEvent};
use crate::wire::rtnl::{Address, Body, Link, Mac};
use links::{Relist, TableFull};
use pending::{PendingAnnouncement, Progress};

#[derive(Debug)]
pub(super) struct Announcer<'a> {
    timing: AnnounceTiming,
    active: bool,
    /// The VRRP instance of the watched interface, if that has a virtual MAC.
    instance: Option<u8>,
    /// The index of the watched interface.
    watched: Option<u32>,
    tables: &'a mut Tables,
    /// All links have been listed, and no event has been lost since.
    links_known: bool,
    /// Whether all addresses of all links are to be announced, after a loss of events.
    relist: Relist,
    /// The running dump may list deleted links or addresses.
    is_outdated: bool,
    /// The links in the running dump that had no room.
    ignored_links: u64,
    /// The number of addresses without room, as last logged.
    unannounced_logged: u64,
    /// The link on which the last frame failed.
    failing: Option<u32>,
    /// No entry is due before this. None: no entry is due.
    next_due: Option<Instant>,
    not_before: Instant,
    /// The index at which the next search for a due entry starts.
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
            relist: Relist::No,
            is_outdated: false,
            ignored_links: 0,
            unannounced_logged: 0,
            failing: None,
            next_due: None,
            not_before: Instant::ZERO,
            cursor: 0,
        }
    }

    /// Handles a change of the state or of the watched interface's MAC. A router that becomes active starts its waiting
    /// announcements. One that becomes backup stops them, and will start them again.
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

    /// Handles a new watched interface, whose addresses keepalived announces itself.
    pub(super) fn handle_watched(&mut self, watched: Option<u32>) {
        self.watched = watched;
        if let Some(ifindex) = watched {
            self.tables.links.relist(ifindex, Relist::No);
        }
        self.drop_entries(|address| Some(address.ifindex) == watched);
    }

    /// Returns the first stage of an address that is not tentative.
    fn beginning(&self) -> Progress {
        if self.active {
            Progress::Announcing { rounds: self.timing.repeat, replying: false }
        } else {
            Progress::Waiting
        }
    }

    /// Handles an event, or an entry that is `listed` by the running dump. Returns the dump that has to follow.
    pub(super) fn handle_link_or_address(
        &mut self,
        body: &Body,
        listed: bool,
        journal: &mut Journal,
        now: Instant,
    ) -> Option<Dump> {
        match body {
            Body::NewAddress(address) => {
                if self.handle_address(address, listed, now).is_err() {
                    journal.counters.unannounced += 1;
                }
            }
            Body::DelAddress(address) => {
                self.is_outdated |= self.is_listed_to_announce(address.ifindex);
                let key = AddressKey::from(address);
                self.drop_entries(|address| *address == key);
            }
            Body::NewLink(link) => {
                return self.handle_link(link, listed, journal.counters.ignored_links);
            }
            Body::DelLink(link) => {
                self.is_outdated = true;
                self.tables.links.remove(link.ifindex);
                self.drop_entries(|address| address.ifindex == link.ifindex);
            }
            Body::Ipv6Forwarding { ifindex, on } => {
                self.is_outdated |= !self.tables.links.set_router(*ifindex, *on);
            }
            Body::Done(_) | Body::Error(_) | Body::Other => {}
        }
        None
    }

    fn handle_link(&mut self, link: &Link, listed: bool, ignored: u64) -> Option<Dump> {
        let ifindex = link.ifindex;
        let updated = self.tables.links.update(link, listed);
        let known = self.tables.links.get(ifindex);
        // The event of an unknown link lacks the name or MAC, and entries of the dump may be older.
        self.is_outdated |= !listed && known.is_none() && link.ethernet;
        // A dump lists the addresses of a link that comes up again. Before the first dump, an unknown link may be up.
        if known.map_or(self.links_known, |link| !link.up) {
            self.drop_entries(|address| address.ifindex == ifindex);
        }
        match updated {
            // After a loss all addresses have been listed before the links.
            Ok(true) if self.watched != Some(ifindex) && (!listed || self.links_known) => {
                self.tables.links.relist(ifindex, Relist::Wanted);
                Some(Dump::Addresses)
            }
            Ok(_) => None,
            Err(TableFull) if listed => {
                self.ignored_links += 1;
                None
            }
            // The dump counts the ignored links.
            Err(TableFull) => (ignored == 0).then_some(Dump::Links),
        }
    }

    /// Returns whether the running dump of addresses announces those of this link.
    fn is_listed_to_announce(&self, ifindex: u32) -> bool {
        self.relist == Relist::Running || self.tables.links.is_relisted(ifindex)
    }

    /// Returns the relist states of each link, and of all links.
    fn relists(&mut self) -> impl Iterator<Item = &mut Relist> {
        self.tables.links.relists().chain([&mut self.relist])
    }

    /// Handles a new or changed address, or one that is `listed` by the running dump.
    fn handle_address(
        &mut self,
        address: &Address,
        listed: bool,
        now: Instant,
    ) -> Result<(), TableFull> {
        let Address { ifindex, cidr, flags, refreshed, .. } = *address;
        let is_wanted = !listed || !self.is_outdated && self.is_listed_to_announce(ifindex);
        if !is_wanted {
            return Ok(());
        }
        let (ip, key) = (cidr.address(), AddressKey::from(address));
        if flags.contains(AddressFlags::Dadfailed) {
            // The VIP, too, has an entry after another station's claim.
            self.drop_entries(|address| *address == key);
            return Ok(());
        }
        if self.watched == Some(ifindex) {
            // keepalived announces these; only the VIP may have an entry.
            if let Some(entry) = self.tables.entries.iter_mut().find(|entry| entry.address == key) {
                entry.seen = true;
            }
            return Ok(());
        }
        let usable = !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
        // Before the first dump of links, the link of an event may be unknown.
        let up = !self.links_known || self.tables.links.get(ifindex).is_some_and(|link| link.up);
        if !usable || !up {
            return Ok(());
        }
        let undecided = flags.intersects(AddressFlags::Tentative | AddressFlags::Optimistic);
        let progress = if undecided { Progress::Tentative } else { self.beginning() };
        let entries = &mut self.tables.entries;
        match entries.iter_mut().find(|entry| entry.address == key) {
            // An event since the start of the dump is newer, and its rounds continue. They start again if duplicate
            // address detection has started. They also start again if the running dump has not shown the address yet,
            // which may have been removed and added again.
            Some(PendingAnnouncement { seen: true, progress, .. })
                if listed || !undecided && progress.is_under_way() =>
            {
                return Ok(());
            }
            Some(entry) => (entry.progress, entry.due, entry.seen) = (progress, now, true),
            None if refreshed && !listed && !undecided => return Ok(()),
            None => {
                let new = PendingAnnouncement { address: key, progress, due: now, seen: true };
                // A tentative address without room is counted when it becomes usable.
                entries.push(new).or(if undecided { Ok(()) } else { Err(TableFull) })?;
            }
        }
        if progress.is_under_way() {
            self.next_due = Some(self.next_due.map_or(now, |due| due.min(now)));
        }
        Ok(())
    }

    /// Announces an address of the watched interface, if that is up, because another station has claimed it.
    pub(super) fn announce_again(&mut self, address: AddressKey, now: Instant) {
        self.drop_entries(|known| *known == address);
        if self.tables.links.get(address.ifindex).is_some_and(|link| link.up) {
            let (progress, due, seen) = (self.beginning(), now, true);
            // Without room, others are already queued.
            let _ = self.tables.entries.push(PendingAnnouncement { address, progress, due, seen });
            self.next_due = Some(now);
        }
    }

    fn drop_entries(&mut self, which: impl Fn(&AddressKey) -> bool) {
        self.tables.entries.retain(|entry| !which(&entry.address));
    }

    /// Handles a loss of events: the next dump announces all addresses. The running dump may be older than the loss.
    pub(super) fn handle_loss(&mut self) {
        (self.relist, self.links_known, self.is_outdated) = (Relist::Wanted, false, true);
    }

    /// Handles the start of a dump of all links.
    pub(super) fn links_begin(&mut self) {
        (self.is_outdated, self.ignored_links) = (false, 0);
        self.tables.links.begin();
    }

    /// Handles the end of a dump of all links. Returns whether no other is needed.
    pub(super) fn links_end(
        &mut self,
        is_complete: bool,
        journal: &mut Journal,
        now: Instant,
    ) -> bool {
        if !is_complete || self.is_outdated {
            return false;
        }
        self.links_known = true;
        self.tables.links.end();
        let Tables { links, entries } = &mut *self.tables;
        entries.retain(|entry| links.get(entry.address.ifindex).is_some_and(|link| link.up));
        let ignored = self.ignored_links;
        if core::mem::replace(&mut journal.counters.ignored_links, ignored) < ignored {
            journal.log_limited(LimitedEvent::TooManyLinks { ignored }, now);
        }
        true
    }

    /// Handles the start of a dump of all addresses.
    pub(super) fn addresses_begin(&mut self) {
        self.is_outdated = false;
        self.relists().for_each(Relist::begin);
        let Tables { links, entries } = &mut *self.tables;
        for entry in entries {
            let ifindex = entry.address.ifindex;
            entry.seen &= self.relist != Relist::Running && !links.is_relisted(ifindex);
        }
    }

    /// Handles the end of a dump of all addresses: removes those not seen. Returns whether no other dump is needed.
    pub(super) fn addresses_end(&mut self, is_complete: bool) -> bool {
        let is_running = self.relists().any(|relist| *relist == Relist::Running);
        let is_complete = is_complete && !self.is_outdated;
        if is_complete {
            self.tables.entries.retain(|entry| entry.seen);
        }
        self.relists().for_each(|relist| relist.end(is_complete));
        is_complete || !is_running
    }

    /// Logs the addresses that had no room since the last empty queue, in one line.
    pub(super) fn handle_queue_empty(&mut self, journal: &mut Journal, now: Instant) {
        let total = journal.counters.unannounced;
        if core::mem::replace(&mut self.unannounced_logged, total) != total {
            journal.log_limited(LimitedEvent::TooManyAddresses { total }, now);
        }
    }
}

#[cfg(test)]
mod tests;
