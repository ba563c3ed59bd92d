//! Announcing addresses: when which frame goes out on which interface.
//!
//! An address that appears on any interface but the watched one is announced in rounds, so that the
//! stations around learn where it is now. A station ignores what comes within a second of the last
//! word on an address, hence the time between rounds.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use heapless::Vec;
use netlink_packet_route::address::AddressFlags;

use super::links::{Full, Links};
use super::{Duration, Instant};
use crate::wire::rtnl::{Address, Link, Mac};

/// The most addresses that are announced at the same time.
const MAX_ADDRESSES: usize = 4096;
/// How long to wait if the kernel takes no more frames, unless it says before that it does again.
const QUEUE_FULL: Duration = Duration::from_millis(100);

/// How announcements are made. The names are keepalived's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tempo {
    /// Rounds for each address (`garp_master_repeat`).
    pub repeat: u8,
    /// From one round of an address to the next (`garp_master_delay`).
    pub delay: Duration,
    /// From one address to the next (`garp_interval`), so that switches do not throttle them.
    pub interval: Duration,
}

impl Default for Tempo {
    /// 3 rounds, 2 s apart; 1,000 addresses a second.
    fn default() -> Self {
        Self { repeat: 3, delay: Duration::from_secs(2), interval: Duration::from_millis(1) }
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where it goes out.
    pub ifindex: u32,
    /// The interface's present MAC.
    pub mac: Mac,
    /// What is said.
    pub kind: Kind,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ARP request in which sender and target are this address.
    ArpRequest(Ipv4Addr),
    /// An ARP reply to nobody.
    ArpReply(Ipv4Addr),
    /// An unsolicited neighbour advertisement.
    Advertisement {
        /// The address.
        ip: Ipv6Addr,
        /// The interface forwards.
        router: bool,
    },
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Sent {
    /// It is out.
    Yes,
    /// The socket's queue is full; the poll will tell when it is not.
    Blocked,
    /// The interface's queue is full; nobody will tell when it is not.
    QueueFull,
    /// It will not go out.
    Failed,
}

/// An address with rounds to come.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ip: IpAddr,
    /// Frames still to be sent; 0: waiting for the end of duplicate address detection.
    frames: u8,
    ifindex: u32,
    due: Instant,
    /// The dump under way, or an event since it began, has shown it.
    seen: bool,
}

/// The memory of the announcer. It is large, and most of it is never touched.
#[derive(Debug)]
pub struct Tables {
    links: Links,
    entries: Vec<Entry, MAX_ADDRESSES>,
}

impl Tables {
    /// Empty ones.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: Links::new(), entries: Vec::new() }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

/// Decides on announcements.
#[derive(Debug)]
pub(super) struct Announcer<'a> {
    tempo: Tempo,
    tables: &'a mut Tables,
    /// The link whose addresses the dump under way lists.
    listing: Option<u32>,
    /// There has been a dump of all links.
    links_known: bool,
    /// Events were lost, and no dump of all links has begun since.
    lost: bool,
    /// Addresses may have appeared unseen: after the next complete dump of all links they are listed.
    unseen: bool,
    /// No entry is due before this; none if none ever is.
    next_due: Option<Instant>,
    /// No frame goes out before this.
    not_before: Instant,
    /// Where the search for an entry that is due goes on.
    cursor: usize,
    /// Addresses and links for which there was no room.
    pub(super) dropped: u32,
}

impl<'a> Announcer<'a> {
    pub(super) fn new(tempo: Tempo, tables: &'a mut Tables) -> Self {
        Self {
            tempo,
            tables,
            listing: None,
            links_known: false,
            lost: false,
            unseen: false,
            next_due: None,
            not_before: Instant::ZERO,
            cursor: 0,
            dropped: 0,
        }
    }

    /// Takes a new or changed link.
    pub(super) fn on_link(&mut self, link: &Link) {
        if let Err(Full) = self.tables.links.update(link) {
            self.dropped = self.dropped.saturating_add(1);
        }
        // When it comes up again, its addresses are listed.
        if self.tables.links.get(link.ifindex).is_none_or(|link| !link.up) {
            self.drop_entries(|entry| entry.ifindex == link.ifindex);
        }
    }

    /// Takes the end of a link, or of its being any link but the watched one.
    pub(super) fn on_link_gone(&mut self, ifindex: u32) {
        self.tables.links.remove(ifindex);
        self.drop_entries(|entry| entry.ifindex == ifindex);
    }

    /// Takes whether an interface forwards IPv6.
    pub(super) fn on_forwarding(&mut self, ifindex: u32, on: bool) {
        if let Some(link) = self.tables.links.get_mut(ifindex) {
            link.router = on;
        }
    }

    /// Takes an address that is new or changed.
    pub(super) fn on_address(&mut self, address: &Address, now: Instant) {
        // At the very start the event may be earlier than the news of its link.
        self.unseen |= !self.links_known;
        self.take(address, false, now);
    }

    /// Takes an address from a dump.
    pub(super) fn on_listed(&mut self, address: &Address, now: Instant) {
        // A kernel that does not filter lists those of all links.
        if self.listing == Some(address.ifindex) {
            self.take(address, true, now);
        }
    }

    fn take(&mut self, address: &Address, listed: bool, now: Instant) {
        let Address { ifindex, cidr, flags, refreshed, .. } = *address;
        let ip = cidr.address();
        let is_ours = |entry: &Entry| entry.ifindex == ifindex && entry.ip == ip;
        if flags.contains(AddressFlags::Dadfailed) {
            return self.drop_entries(is_ours);
        }
        let usable = !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified();
        if !usable || self.tables.links.get(ifindex).is_none_or(|link| !link.up) {
            return;
        }
        let undecided = flags.intersects(AddressFlags::Tentative | AddressFlags::Optimistic);
        let frames = if undecided { 0 } else { self.frames(ip) };
        let entries = &mut self.tables.entries;
        match entries.iter_mut().find(|entry| is_ours(entry)) {
            // Duplicate address detection has begun or ended, or all is to be announced anew; or the
            // event is about what the dump under way has not shown: it had gone and is back.
            Some(entry) if undecided || entry.frames == 0 || listed || !entry.seen => {
                entry.frames = frames;
                entry.due = now;
                entry.seen = true;
            }
            Some(_) => return,
            None if refreshed && !listed && !undecided => return,
            None => {
                if entries.push(Entry { ip, frames, ifindex, due: now, seen: true }).is_err() {
                    self.dropped = self.dropped.saturating_add(1);
                }
            }
        }
        self.next_due = Some(self.next_due.map_or(now, |due| due.min(now)));
    }

    /// How many frames there are to an address: each round has a request and a reply for IPv4.
    fn frames(&self, ip: IpAddr) -> u8 {
        if ip.is_ipv4() { self.tempo.repeat.saturating_mul(2) } else { self.tempo.repeat }
    }

    /// Takes the end of an address.
    pub(super) fn on_address_gone(&mut self, address: &Address) {
        let (ifindex, ip) = (address.ifindex, address.cidr.address());
        self.drop_entries(|entry| entry.ifindex == ifindex && entry.ip == ip);
    }

    fn drop_entries(&mut self, which: impl Fn(&Entry) -> bool) {
        self.tables.entries.retain(|entry| !which(entry));
    }

    /// Events were lost: after the next dump of all links, all addresses are announced again. The one
    /// under way may have been answered before.
    pub(super) fn on_loss(&mut self) {
        self.lost = true;
    }

    /// A dump of all links begins.
    pub(super) fn links_begin(&mut self) {
        self.unseen |= core::mem::take(&mut self.lost);
        self.tables.links.begin();
    }

    /// The dump of all links is complete.
    pub(super) fn links_end(&mut self) {
        self.links_known = true;
        self.tables.links.end(core::mem::take(&mut self.unseen));
        let Tables { links, entries } = &mut *self.tables;
        entries.retain(|entry| links.get(entry.ifindex).is_some_and(|link| link.up));
    }

    /// Whether there are addresses to be listed.
    pub(super) fn wants_listing(&mut self) -> bool {
        self.tables.links.unlisted().is_some()
    }

    /// The link whose addresses are to be dumped now.
    pub(super) fn listing_begin(&mut self) -> Option<u32> {
        let link = self.tables.links.unlisted()?;
        link.unlisted = false;
        let ifindex = link.ifindex;
        for entry in self.tables.entries.iter_mut().filter(|entry| entry.ifindex == ifindex) {
            entry.seen = false;
        }
        self.listing = Some(ifindex);
        self.listing
    }

    /// That dump has ended, well or not. What it has not shown is gone.
    pub(super) fn listing_end(&mut self, complete: bool) {
        let Some(ifindex) = self.listing.take() else { return };
        if complete {
            self.drop_entries(|entry| entry.ifindex == ifindex && !entry.seen);
        } else if let Some(link) = self.tables.links.get_mut(ifindex) {
            link.unlisted = true;
        }
    }

    /// The frame to be sent now. What became of it must be told to [`Announcer::on_sent`].
    pub(super) fn next(&mut self, now: Instant) -> Option<Announcement> {
        if now < self.not_before || self.next_due.is_none_or(|due| now < due) {
            return None;
        }
        let entries = &self.tables.entries;
        let is_due = |index: &usize| {
            entries.get(*index).is_some_and(|entry| entry.frames > 0 && entry.due <= now)
        };
        let due = (self.cursor..entries.len()).chain(0..self.cursor).find(is_due);
        let Some(index) = due else {
            self.next_due = entries.iter().filter(|e| e.frames > 0).map(|e| e.due).min();
            return None;
        };
        self.cursor = index;
        let entry = entries.get(index)?;
        let Some(link) = self.tables.links.get(entry.ifindex) else {
            self.tables.entries.swap_remove(index);
            return None;
        };
        let kind = match entry.ip {
            IpAddr::V4(ip) if entry.frames % 2 == 0 => Kind::ArpRequest(ip),
            IpAddr::V4(ip) => Kind::ArpReply(ip),
            IpAddr::V6(ip) => Kind::Advertisement { ip, router: link.router },
        };
        Some(Announcement { ifindex: link.ifindex, mac: link.mac, kind })
    }

    /// Takes what became of the last frame.
    pub(super) fn on_sent(&mut self, sent: Sent, now: Instant) {
        if matches!(sent, Sent::Blocked | Sent::QueueFull) {
            self.not_before = now + QUEUE_FULL;
            return;
        }
        let Some(entry) = self.tables.entries.get_mut(self.cursor) else { return };
        entry.frames = entry.frames.saturating_sub(1);
        if entry.ip.is_ipv4() && entry.frames % 2 == 1 {
            // The reply follows the request at once.
            return;
        }
        entry.due = now + self.tempo.delay;
        self.not_before = now + self.tempo.interval;
        if entry.frames == 0 {
            self.tables.entries.swap_remove(self.cursor);
        } else {
            self.cursor += 1;
        }
    }

    /// The kernel takes frames again.
    pub(super) fn on_writable(&mut self, now: Instant) {
        self.not_before = self.not_before.min(now);
    }

    /// When to ask for the next frame.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_due.map(|due| due.max(self.not_before))
    }
}

#[cfg(test)]
mod tests;
