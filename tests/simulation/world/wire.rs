//! The segment of the watched interface: who claims the VIP there, and the socket that hears it.

use std::collections::{BTreeSet, VecDeque};

use keepwatch::monitor::{Duration, Input, Instant, State};
use keepwatch::wire::Claim;
use keepwatch::wire::rtnl::Mac;

use super::Simulation;
use super::kernel::{Kernel, MAC, VIRTUAL_MAC};
use super::told::is_virtual;

const OTHER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// Frames for which the socket has room.
const QUEUE: usize = 40;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// In a minute.
const MAX_LINES: usize = 16;
/// In a second, which may begin amid another.
const MAX_READS: usize = 2 * 16;

/// Frames that claim the VIP, or something else, or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claims {
    pub by: Station,
    pub on_other_interface: bool,
    pub of_other_address: bool,
}

/// Whose MAC is claimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Station {
    Other,
    /// A flood: so many, each for itself.
    Others(u8),
    /// A flood of other frames.
    Nobody(u8),
    /// The watched interface.
    Watched,
    /// The VRRP instance.
    Virtual,
    /// The first of our other links.
    FirstLink,
}

#[derive(Debug, Default)]
pub struct Wire {
    /// Where the core last said to listen.
    pub listening: Option<u32>,
    /// Nothing has been heard of the kernel since that could make it think otherwise.
    pub heeds: bool,
    /// The instance of the interface that the kernel has bound the socket to, and the index that the
    /// socket was told.
    bound: Option<u32>,
    bound_to: Option<u32>,
    queue: VecDeque<Input>,
    /// Frames are read.
    reads: bool,
    /// When the last frames were read.
    read_at: VecDeque<Instant>,
    /// What was claimed and counted while the VIP was here, and how much of that before the core last
    /// said to listen.
    claims: Vec<(Mac, Instant)>,
    since: usize,
    /// All who have ever claimed it.
    stations: BTreeSet<Mac>,
    /// Claims that were counted, and of those the ones that are in lines.
    counted: u64,
    said: u64,
    /// When each line was written, and about whom.
    lines: Vec<(Instant, Option<Mac>)>,
}

impl Wire {
    pub fn listen(&mut self, ifindex: u32, rebind: bool, kernel: &Kernel) {
        if rebind || self.bound_to != Some(ifindex) {
            let there = kernel.ifindex == Some(ifindex);
            self.bound_to = there.then_some(ifindex);
            self.bound = there.then_some(kernel.instance).or(self.bound);
        }
        self.queue.clear();
        (self.listening, self.heeds) = (Some(ifindex), true);
        self.since = self.claims.len();
    }

    pub fn is_bound_to(&self, kernel: &Kernel) -> bool {
        kernel.ifindex.is_some() && self.bound == Some(kernel.instance)
    }

    pub fn read(&mut self, reads: bool) {
        assert_ne!(self.reads, reads, "it is so already");
        self.reads = reads;
    }

    pub fn goes_on(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let goes_on = deadline.is_some_and(|deadline| deadline <= now + SECOND);
        self.reads || goes_on
    }

    /// Everything that was claimed is in a line, or within a minute of one.
    pub fn all_is_said(&self) {
        for (mac, at) in self.claims.iter().skip(self.since) {
            let said = self.lines.iter().any(|(line, about)| {
                about.is_none_or(|about| about == *mac) && *line + MINUTE > *at
            });
            assert!(said, "{mac:?} claimed it at {at} in vain: {:?}", self.lines);
        }
    }

    fn note_read(&mut self, now: Instant) {
        self.read_at.push_back(now);
        if self.read_at.len() > MAX_READS {
            let earlier = self.read_at.pop_front().expect("some reads");
            assert!(now >= earlier + SECOND, "too many frames are read");
        }
    }

    fn note_line(&mut self, about: Option<Mac>, now: Instant) {
        let lines = self.lines.len();
        if let Some((earlier, _)) = lines.checked_sub(MAX_LINES).and_then(|n| self.lines.get(n)) {
            assert!(now >= *earlier + MINUTE, "too many lines");
        }
        let last = self.lines.iter().rfind(|(_, line)| line.is_some() && *line == about);
        // With more of them, some are forgotten.
        if let Some((last, _)) = last
            && self.stations.len() <= 16
        {
            assert!(now >= *last + MINUTE, "twice a minute about one station");
        }
        self.lines.push((now, about));
    }
}

impl Simulation<'_> {
    /// Frames come, as far as there is room for them.
    pub(super) fn claim(&mut self, claims: Claims) {
        let ifindex = self.wire.listening.unwrap_or(1) + u32::from(claims.on_other_interface);
        let ip = if claims.of_other_address {
            [192, 0, 2, 1].into()
        } else {
            self.kernel.vip().address()
        };
        let claim = |mac| Input::ClaimReceived(ifindex, Claim { mac, ip });
        let frames = match claims.by {
            Station::Nobody(frames) => vec![Input::NoClaim; frames.into()],
            Station::Others(stations) => {
                (0..stations).map(|station| claim([2, 1, 0, 0, 0, station])).collect()
            }
            Station::Other => vec![claim(OTHER_MAC)],
            Station::Watched => vec![claim(MAC)],
            Station::Virtual => vec![claim(VIRTUAL_MAC)],
            Station::FirstLink => vec![claim(self.lans[0].mac())],
        };
        let room = QUEUE.saturating_sub(self.wire.queue.len());
        self.wire.queue.extend(frames.into_iter().take(room));
    }

    /// Reads frames until there are no more, or until the core has had enough of them.
    pub(super) fn hear(&mut self) {
        while self.wire.reads
            && !self.exited
            && let Some(frame) = self.wire.queue.pop_front()
        {
            self.wire.note_read(self.now);
            let foreign = match frame {
                Input::ClaimReceived(ifindex, claim) => self.is_foreign(ifindex, claim),
                _ => None,
            };
            // A disk may hang meanwhile.
            let at = self.now;
            self.feed(&frame);
            let claims = self.monitor.status().counters.claims;
            if claims != self.wire.counted {
                let mac = foreign.expect("what is to be counted");
                self.wire.claims.push((mac, at));
                self.wire.stations.insert(mac);
                self.wire.counted += 1;
                assert_eq!(claims, self.wire.counted);
            } else if foreign.is_some() {
                assert!(!self.wire.heeds, "{frame:?} is not counted");
            }
        }
    }

    /// The station, if the claim may be counted.
    fn is_foreign(&self, ifindex: u32, Claim { mac, ip }: Claim) -> Option<Mac> {
        let here =
            self.monitor.status().ifindex == Some(ifindex) && ip == self.kernel.vip().address();
        let heard = here && self.reported == Some(State::Active);
        (heard && (is_virtual(mac) || mac != self.kernel.mac)).then_some(mac)
    }

    /// A line says that a station, or more than there is room for, claims the VIP.
    pub(super) fn read_claim(&mut self, about: Option<Mac>, ifindex: u32, count: u32) {
        let (now, wire) = (self.now, &mut self.wire);
        wire.note_line(about, now);
        wire.said += u64::from(count);
        assert!(wire.said <= wire.counted && count > 0, "more than there were");
        let somebody = wire
            .claims
            .iter()
            .any(|(mac, at)| about.is_none_or(|about| about == *mac) && now >= *at + SECOND);
        assert!(somebody, "nobody said so a second ago, while the VIP was here");
        assert_eq!(Some(ifindex), self.kernel.ifindex);
        assert_eq!(self.truth(), State::Active, "it is still here");
        // One line each time round.
        self.sent = true;
    }

    /// The VIP has gone: whatever was claimed need not be said any more.
    pub(super) fn forget_claims(&mut self) {
        self.wire.claims.clear();
        self.wire.since = 0;
    }
}
