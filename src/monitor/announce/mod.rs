//! Announcements: the frames for new addresses on each interface, and their times.
//!
//! A round is an ARP request and an ARP reply (RFC 5227 section 3) or an unsolicited neighbour advertisement (RFC 4861
//! section 7.2.6), by which neighbours update their caches. Linux ignores an ARP packet within a second of the last
//! change (`locktime` in `arp_process`, `net/ipv4/arp.c`), hence the time between rounds.
//!
//! Only the active router announces: with a virtual MAC keepalived has addresses on a backup too, and a frame from there
//! would divert the active router's traffic. So a backup keeps no address. A router that becomes active lists all addresses,
//! and follows the events. It lists all links the first time and after a loss of events; else events have kept them.
//!
//! ```text
//!           an event                                          an entry of an answer
//!        │              │                                               │
//!        ▼              │                                               ▼
//!  ┌───────────┐  it    │      ┌────────────┐  the queue is empty  ┌─────────┐
//!  │ Tentative │ ─ends──┴────▶ │ Announcing │ ◀─────────────────── │ Waiting │ ◀── the link is unknown, or has the
//!  └───────────┘               └────────────┘ ───────────────────▶ └─────────┘     MAC of another VRRP instance
//!                                    │ no round is left
//!                                    ▼
//!                                  Done, for a while and until the lists have ended: no event or answer shows it as new
//! ```
//!
//! An address that is gone, or whose link is gone or down, is removed from any state.

mod frames;
mod links;
mod pending;

pub use pending::{AddressKey, AnnounceTiming, Announcement, FrameKind, Tables};

use core::mem::{replace, take};

use netlink_packet_route::address::AddressFlags;

use super::journal::Journal;
use super::vrrp::Instance;
use super::{Answer, Instant, LimitedEvent};
use crate::wire::rtnl::{Address, Body};
use frames::Blocked;
use heapless::Vec;
use links::LinkChange;
use pending::{PendingAnnouncement, Progress, Rank};

/// Links whose queues are full at the same time.
const MAX_BLOCKED: usize = 16;

/// Rounds in which everything is listed and announced, the watched interface included.
#[derive(Clone, Copy, Debug)]
struct Again {
    /// Only this address is announced.
    only: Option<AddressKey>,
    rounds: u8,
    due: Instant,
}

#[derive(Debug)]
pub(super) struct Announcer<'a> {
    timing: AnnounceTiming,
    /// Announce addresses when they appear, and all when the router becomes active.
    announces_changes: bool,
    active: bool,
    /// The VRRP instance of the watched interface.
    instance: Option<Instance>,
    /// The index of the watched interface.
    watched: Option<u32>,
    tables: &'a mut Tables,
    /// The table has all links: they have been listed, and every event since has been read, also on a backup.
    has_links: bool,
    /// What is still to be listed, to announce everything.
    pub(super) links_missing: bool,
    pub(super) addresses_missing: bool,
    /// Events have been lost. Until all links are asked for, events that have waited in the queue may be outdated.
    has_loss: bool,
    again: Option<Again>,
    /// The list in progress is for a round of `again`. Otherwise each listed address gets `timing.repeat` rounds.
    lists_round: bool,
    /// Entries wait for an empty queue.
    pub(super) has_waiting: bool,
    /// The number of entries before the current answer about addresses.
    before_answer: usize,
    /// The links in the current answer that had no room.
    ignored_links: u64,
    /// The number of addresses without room, as last logged.
    unannounced_logged: u64,
    /// The link on which the last frame failed.
    failing: Option<u32>,
    blocked: Vec<Blocked, MAX_BLOCKED>,
    /// No entry is due before this. None: no entry is due.
    next_due: Option<Instant>,
    not_before: Instant,
    /// The index and the rank at which the next search for a due entry starts.
    cursor: usize,
    rank: Rank,
    /// The frames sent since the queue was last empty.
    burst: u32,
}

impl<'a> Announcer<'a> {
    pub(super) fn new(
        timing: AnnounceTiming,
        tables: &'a mut Tables,
        announces_changes: bool,
    ) -> Self {
        Self {
            timing,
            announces_changes,
            active: false,
            instance: None,
            watched: None,
            tables,
            has_links: false,
            links_missing: false,
            addresses_missing: false,
            has_loss: false,
            again: None,
            lists_round: false,
            has_waiting: false,
            before_answer: 0,
            ignored_links: 0,
            unannounced_logged: 0,
            failing: None,
            blocked: Vec::new(),
            next_due: None,
            not_before: Instant::ZERO,
            cursor: 0,
            rank: Rank::default(),
            burst: 0,
        }
    }

    /// Handles a change of the state or of the watched interface's VRRP instance. Returns whether to list what is missing.
    pub(super) fn handle_role(
        &mut self,
        active: bool,
        instance: Option<Instance>,
        now: Instant,
    ) -> bool {
        if replace(&mut self.instance, instance) != instance {
            self.start_waiting(now);
        }
        if replace(&mut self.active, active) == active {
            return false;
        }
        self.tables.entries.clear();
        if self.has_links {
            self.tables.links.cancel_relists();
        } else {
            self.tables.links.clear();
        }
        self.blocked.clear();
        (self.again, self.next_due) = (None, None);
        (self.links_missing, self.addresses_missing) = (false, false);
        let lists = active && self.announces_changes;
        if lists {
            self.list(false);
        }
        lists
    }

    /// Wants everything listed and announced, for a round of [`Announcer::announce_again`] or not.
    fn list(&mut self, for_round: bool) {
        (self.links_missing, self.addresses_missing) = (!self.has_links, true);
        self.lists_round = for_round;
    }

    /// Announces everything again, or only one address, because another station has claimed the VIP.
    pub(super) fn announce_again(&mut self, only: Option<AddressKey>, now: Instant) {
        if self.active {
            let rounds = if only.is_some() { 1 } else { self.timing.repeat.get() };
            self.again = Some(Again { only, rounds, due: now });
        }
    }

    /// Cancels [`Announcer::announce_again`], as the other station has the VIP.
    pub(super) fn stop(&mut self) {
        self.again = None;
        if take(&mut self.lists_round) {
            (self.links_missing, self.addresses_missing) = (false, false);
        }
        let (announces, watched) = (self.announces_changes, self.watched);
        self.drop_entries(|address| !announces || Some(address.ifindex) == watched);
    }

    /// Starts a round of [`Announcer::announce_again`], if one is due. Returns whether to list what is missing.
    pub(super) fn start_round(&mut self, now: Instant) -> bool {
        if self.is_listing() || self.again.is_none_or(|again| now < again.due) {
            return false;
        }
        self.tables.entries.retain(|entry| entry.progress != Progress::Done);
        self.list(true);
        true
    }

    fn is_listing(&self) -> bool {
        self.links_missing || self.addresses_missing
    }

    /// Drops what has been announced, unless an answer to come may list it again.
    fn forget_done(&mut self, now: Instant) {
        if !self.may_list_again() {
            self.tables.entries.retain(|entry| !entry.is_over(now));
        }
    }

    /// Returns whether the addresses of a link, or all, have not yet been listed without gaps.
    fn may_list_again(&self) -> bool {
        self.is_listing() || self.wanted_link().is_some()
    }

    /// Handles a new watched interface, whose addresses keepalived announces itself.
    pub(super) fn handle_watched(&mut self, watched: Option<u32>) {
        self.watched = watched;
        self.drop_entries(|address| Some(address.ifindex) == watched);
    }

    /// Handles an event.
    pub(super) fn handle_event(&mut self, body: &Body, journal: &mut Journal, now: Instant) {
        if self.has_loss {
            return;
        }
        match body {
            Body::NewAddress(address) => {
                if self.active && self.announces_changes {
                    self.handle_address(address, false, journal, now);
                }
            }
            Body::DelAddress(address) => {
                let key = AddressKey::from(address);
                self.drop_entries(|address| *address == key);
            }
            Body::NewLink(link) => {
                let relists = self.active && self.announces_changes;
                match self.tables.links.update(link, relists) {
                    LinkChange::New => self.start_waiting(now),
                    LinkChange::Restart => self.drop_entries(|key| key.ifindex == link.ifindex),
                    LinkChange::Known => {}
                    LinkChange::TableFull => {
                        self.has_links = false;
                        // The next answer about all links counts them.
                        if self.active && journal.counters.ignored_links == 0 {
                            count_ignored(1, journal, now);
                        }
                    }
                }
            }
            Body::DelLink(link) => {
                self.tables.links.remove(link.ifindex);
                self.drop_entries(|address| address.ifindex == link.ifindex);
            }
            Body::Ipv6Forwarding { ifindex, on } => self.tables.links.set_router(*ifindex, *on),
            Body::Done(_) | Body::Other => {}
        }
    }

    /// Handles an entry of an answer about all links.
    pub(super) fn handle_link_entry(&mut self, body: &Body) {
        let Body::NewLink(link) = body else { return };
        // The event of a change may come later, when it is none any more.
        let relists = self.active && self.announces_changes && !self.links_missing;
        match self.tables.links.update(link, relists) {
            LinkChange::Restart => self.drop_entries(|key| key.ifindex == link.ifindex),
            LinkChange::New | LinkChange::Known => {}
            LinkChange::TableFull => self.ignored_links += 1,
        }
    }

    /// Handles an entry of an answer about the addresses of one link, or of all.
    pub(super) fn handle_address_entry(
        &mut self,
        address: &Address,
        only: Option<u32>,
        journal: &mut Journal,
        now: Instant,
    ) {
        let is_wanted = only.map_or(self.addresses_missing, |only| only == address.ifindex);
        // After a loss, links come first.
        if is_wanted && self.active && !self.has_loss {
            self.handle_address(address, true, journal, now);
        }
    }

    /// Handles the start of an answer about all links.
    pub(super) fn begin_links(&mut self) {
        self.has_loss = false;
        self.ignored_links = 0;
        self.tables.links.begin();
    }

    /// Handles the start of an answer about addresses.
    pub(super) fn begin_addresses(&mut self) {
        self.before_answer = self.tables.entries.len();
    }

    /// Handles the end of an answer about all links.
    pub(super) fn end_links(&mut self, answer: Answer, journal: &mut Journal, now: Instant) {
        // Addresses may have waited for their link.
        self.has_waiting = true;
        if answer == Answer::Complete {
            (self.links_missing, self.has_links) = (false, self.ignored_links == 0);
            self.tables.links.end();
            count_ignored(self.ignored_links, journal, now);
            self.finish_listing(now);
        }
    }

    /// Handles the end of an answer about all addresses.
    pub(super) fn end_addresses(&mut self, answer: Answer, now: Instant) {
        if answer == Answer::Complete && !self.has_loss {
            self.addresses_missing = false;
            self.finish_listing(now);
        }
    }

    fn finish_listing(&mut self, now: Instant) {
        if self.is_listing() {
            return;
        }
        self.forget_done(now);
        if take(&mut self.lists_round)
            && let Some(again) = &mut self.again
        {
            (again.rounds, again.due) = (again.rounds.saturating_sub(1), now + self.timing.delay);
        }
        self.again.take_if(|again| again.rounds == 0);
    }

    /// Returns the next link whose addresses have to be listed and announced.
    pub(super) fn wanted_link(&self) -> Option<u32> {
        if self.is_listing() { None } else { self.tables.links.relisted(self.watched) }
    }

    /// Handles the end of an answer about the addresses of this link.
    pub(super) fn end_link(&mut self, ifindex: u32, answer: Answer) {
        if answer == Answer::Complete {
            self.tables.links.end_relist(ifindex);
        }
    }

    /// Handles a new or changed address, or one that is `listed` by an answer.
    fn handle_address(
        &mut self,
        address: &Address,
        listed: bool,
        journal: &mut Journal,
        now: Instant,
    ) {
        let Address { flags, refreshed, .. } = *address;
        let key = AddressKey::from(address);
        if flags.contains(AddressFlags::Dadfailed) {
            return self.drop_entries(|address| *address == key);
        }
        if !self.may_announce(key, listed) {
            return;
        }
        let undecided = flags.intersects(AddressFlags::Tentative | AddressFlags::Optimistic);
        let progress = match (undecided, listed) {
            (true, _) => Progress::Tentative,
            (false, true) => Progress::Waiting,
            (false, false) => Progress::Announcing,
        };
        let (is_listing, may_list_again) = (self.is_listing(), self.may_list_again());
        let rounds = if listed && self.lists_round { 1 } else { self.timing.repeat.get() };
        let new = PendingAnnouncement::new(key, progress, rounds, now);
        let entries = &mut self.tables.entries;
        let is_known = |entry: &&mut PendingAnnouncement| {
            entry.address == key && (may_list_again || !entry.is_over(now))
        };
        // An answer lists each address once.
        let searched = if listed { self.before_answer } else { entries.len() };
        match entries.iter_mut().take(searched).find(is_known) {
            // Its rounds continue, unless duplicate address detection has started again, or has ended.
            Some(known) if known.progress != Progress::Tentative && (listed || !undecided) => {
                // Its link has come up or has another MAC. It may be listed twice.
                if listed && !is_listing && !known.is_later {
                    known.rounds = rounds;
                }
                return;
            }
            Some(known) => *known = new,
            None if refreshed && !listed && !undecided => return,
            None => {
                let pushed = entries.push(new).or_else(|new| {
                    self.forget_done(now);
                    self.tables.entries.push(new)
                });
                // A tentative address without room is counted when it becomes usable.
                if pushed.is_err() && !undecided {
                    journal.counters.unannounced += 1;
                    return;
                }
            }
        }
        match progress {
            Progress::Announcing => self.expect_due(now),
            Progress::Waiting => self.has_waiting = true,
            Progress::Tentative | Progress::Done => {}
        }
    }

    /// Returns whether an address is this announcer's, and its link can send frames.
    fn may_announce(&self, key: AddressKey, listed: bool) -> bool {
        let AddressKey { ifindex, ip, .. } = key;
        // keepalived announces the addresses of the watched interface.
        let is_keepalived_s = self.watched == Some(ifindex) && self.again.is_none();
        let only = self.again.and_then(|again| again.only).filter(|_| listed && self.lists_round);
        let is_other = only.is_some_and(|only| only != key);
        let usable = !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
        let up = self.tables.links.get(ifindex).map_or(self.links_missing, |link| link.up);
        !is_keepalived_s && !is_other && usable && up
    }

    fn expect_due(&mut self, now: Instant) {
        self.next_due = Some(self.next_due.map_or(now, |due| due.min(now)));
        self.rank = Rank::default();
    }

    /// Starts the announcements that wait.
    fn start_waiting(&mut self, now: Instant) {
        self.has_waiting = false;
        for entry in &mut self.tables.entries {
            if entry.progress == Progress::Waiting {
                entry.progress = Progress::Announcing;
            }
        }
        self.expect_due(now);
    }

    fn drop_entries(&mut self, which: impl Fn(&AddressKey) -> bool) {
        self.tables.entries.retain(|entry| !which(&entry.address));
    }

    /// Handles that an event about a link may not have been read: the next takeover or round lists all links.
    pub(super) fn forget_links(&mut self) {
        self.has_links = false;
    }

    /// Handles a loss of events. Returns whether to list all links and addresses.
    pub(super) fn handle_loss(&mut self) -> bool {
        self.forget_links();
        self.tables.links.clear();
        self.tables.entries.clear();
        self.has_loss = true;
        let lists = if self.announces_changes { self.active } else { self.is_listing() };
        if lists {
            self.list(!self.announces_changes);
        }
        lists
    }

    /// Handles an empty queue: every event has been read that may have removed a listed address. Logs the addresses that
    /// had no room since the last one, in one line.
    pub(super) fn handle_queue_empty(&mut self, journal: &mut Journal, now: Instant) {
        self.burst = 0;
        if take(&mut self.has_waiting) {
            self.start_waiting(now);
        }
        let total = journal.counters.unannounced;
        if replace(&mut self.unannounced_logged, total) != total {
            journal.log_limited(LimitedEvent::TooManyAddresses { total }, now);
        }
    }
}

/// Shows the number of links without room.
fn count_ignored(ignored: u64, journal: &mut Journal, now: Instant) {
    if replace(&mut journal.counters.ignored_links, ignored) < ignored {
        journal.log_limited(LimitedEvent::TooManyLinks { ignored }, now);
    }
}

#[cfg(test)]
mod tests;
