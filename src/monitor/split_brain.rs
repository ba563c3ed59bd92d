//! Split brain: other stations that claim the VIP while it is ours.
//!
//! Their claims make an episode. It is told if the VIP is still here some time after the first, as a master that gives way
//! hears claims just before; and it is over when none has come for a while, or the VIP goes. Some stations claim an
//! address only when they get it, so probes have them claim it again.

use heapless::Deque;

use super::journal::Journal;
use super::vip::Vip;
use super::{Action, Duration, Instant, LogEvent};
use crate::wire::Claim;
use crate::wire::rtnl::Mac;

/// Frames that are read in a [`SECOND`], and so how often a flood wakes the daemon. A master that announces itself
/// sends fewer. The kernel drops what has no room in the socket's queue.
const MAX_FRAMES: u32 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// How long the VIP has to stay after a claim for that to be worth a line. A master that gives way to
/// another receives its claims some milliseconds before its own VIP goes; and to one that has just become master, the
/// other would answer a probe as long.
const CONFIRMATION: Duration = SECOND;
/// Without a claim for so long an episode is over.
const QUIET: Duration = Duration::from_secs(30);
/// Probes that may get lost during an episode.
const LOST_PROBES: u32 = 3;

/// Episodes that are told in a [`PERIOD`]. With the end of each, and of one that began before, these are 15 lines.
const MAX_EPISODES: usize = 7;
const PERIOD: Duration = Duration::from_secs(60);

/// A question who else has the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The index of the interface on which it goes out.
    pub ifindex: u32,
    /// The interface's present MAC.
    pub mac: Mac,
    /// Where an answer to an ARP probe is to be sent: to all, if both masters have this MAC, as no switch forwards what
    /// a station seems to send to itself.
    pub answer_to: Mac,
}

#[derive(Debug)]
struct Episode {
    /// The first.
    claimant: Mac,
    claims: u32,
    began: Instant,
    last: Instant,
    is_told: bool,
}

/// What it takes to see a split brain.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// From one probe to the next, if any are sent, and when that is due.
    probe_interval: Option<Duration>,
    probe_due: Option<Instant>,
    /// The interface on which claims are received, while the VIP is there.
    watched: Option<u32>,
    /// The interface may be another than the one that the socket was bound to, whatever its index.
    may_be_unbound: bool,
    reads: bool,
    /// Frames since the last second began, and when it ends.
    frames: u32,
    second_ends: Option<Instant>,
    episode: Option<Episode>,
    /// When the last episodes were told.
    told: Deque<Instant, MAX_EPISODES>,
}

impl Detector {
    pub(super) fn new(probe_interval: Option<Duration>) -> Self {
        Self { probe_interval, ..Self::default() }
    }

    /// Handles that the watched interface may have come or gone: an event or a complete dump has said so, or events
    /// may have been lost, and with them the end of that interface and the beginning of another with its index.
    pub(super) fn handle_interface_change(&mut self) {
        self.may_be_unbound = true;
    }

    /// Handles that a frame was read, whatever it says.
    pub(super) fn handle_frame(&mut self, now: Instant) {
        if self.is_second_over(now) {
            (self.second_ends, self.frames) = (Some(now + SECOND), 0);
        }
        self.frames = self.frames.saturating_add(1);
    }

    /// Handles a claim. What we send ourselves is not heard, so what comes from a virtual MAC comes from another
    /// station, even if that MAC is ours at the time.
    pub(super) fn handle_claim(
        &mut self,
        ifindex: u32,
        claim: &Claim,
        vip: &Vip,
        journal: &mut Journal,
        now: Instant,
    ) {
        let is_heard = self.watched == Some(ifindex) && claim.ip == vip.ip();
        let is_foreign = |own: Mac| claim.mac != own || virtual_router(claim.mac).is_some();
        if is_heard && vip.mac().is_some_and(is_foreign) {
            journal.counters.claims += 1;
            let (claimant, began) = (claim.mac, now);
            let new = Episode { claimant, claims: 0, began, last: now, is_told: false };
            let episode = self.episode.get_or_insert(new);
            episode.claims = episode.claims.saturating_add(1);
            episode.last = now;
        }
    }

    /// Who has begun the episode that lasts, once that has been told.
    pub(super) fn claimant(&self) -> Option<Mac> {
        let told = self.episode.as_ref().filter(|episode| episode.is_told);
        told.map(|episode| episode.claimant)
    }

    /// `wanted` is the interface to be watched, while the VIP is there, and `mac` its MAC. An episode is told, and a
    /// probe sent, only if it `is_certain` that the VIP still is there.
    pub(super) fn next_action(
        &mut self,
        wanted: Option<u32>,
        mac: Option<Mac>,
        is_certain: bool,
        now: Instant,
    ) -> Option<Action> {
        let is_new = wanted != self.watched;
        if is_new {
            if let Some(end) = self.end_episode() {
                return Some(end);
            }
            self.watched = wanted;
            self.probe_due = wanted.and(self.probe_interval).map(|_| now + CONFIRMATION);
        }
        if let Some(ifindex) = wanted
            && (is_new || self.may_be_unbound)
        {
            let rebind = core::mem::take(&mut self.may_be_unbound);
            return Some(Action::WatchClaims { ifindex, rebind });
        }
        let reads = wanted.is_some() && (self.frames < MAX_FRAMES || self.is_second_over(now));
        if reads != self.reads {
            self.reads = reads;
            return Some(Action::ReadFrames(reads));
        }
        if self.quiet_ends().is_some_and(|end| now >= end) {
            return self.end_episode();
        }
        let ifindex = wanted.filter(|_| is_certain)?;
        self.tell_episode(ifindex, now).or_else(|| self.probe(ifindex, mac, now))
    }

    /// Tells the episode that lasts, if it is time to.
    fn tell_episode(&mut self, ifindex: u32, now: Instant) -> Option<Action> {
        let is_due = self.telling_due().is_some_and(|due| now >= due);
        let episode = self.episode.as_mut().filter(|_| is_due)?;
        episode.is_told = true;
        if self.told.is_full() {
            self.told.pop_front();
        }
        let _ = self.told.push_back(now);
        Some(Action::Log(LogEvent::SplitBrain { mac: episode.claimant, ifindex }))
    }

    /// Forgets the episode that lasts. Returns the line about its end, if it has been told.
    fn end_episode(&mut self) -> Option<Action> {
        let Episode { claimant: mac, claims, began, last, is_told } = self.episode.take()?;
        is_told.then_some(Action::Log(LogEvent::SplitBrainOver {
            mac,
            claims,
            lasted: last - began,
        }))
    }

    fn probe(&mut self, ifindex: u32, mac: Option<Mac>, now: Instant) -> Option<Action> {
        self.probe_due.filter(|due| now >= *due)?;
        self.probe_due = self.probe_interval.map(|interval| now + interval);
        let mac = mac?;
        let answer_to = if virtual_router(mac).is_some() { [0xff; 6] } else { mac };
        Some(Action::SendProbe(Probe { ifindex, mac, answer_to }))
    }

    /// When the episode that lasts has to be told, if it has yet to be.
    fn telling_due(&self) -> Option<Instant> {
        let untold = self.episode.as_ref().filter(|episode| !episode.is_told)?;
        let room = self.told.front().filter(|_| self.told.is_full()).map(|first| *first + PERIOD);
        room.max(Some(untold.began + CONFIRMATION))
    }

    /// When the one that has been told is over, unless there is another claim.
    fn quiet_ends(&self) -> Option<Instant> {
        let told = self.episode.as_ref().filter(|episode| episode.is_told)?;
        let probes = self.probe_interval.map(|interval| interval * LOST_PROBES + CONFIRMATION);
        Some(told.last + QUIET.max(probes.unwrap_or(QUIET)))
    }

    /// While it is not settled whether the VIP is here, no episode is told, and no probe sent.
    pub(super) fn deadline(&self, is_settled: bool) -> Option<Instant> {
        let is_paused = self.watched.is_some() && !self.reads;
        let pause_ends = self.second_ends.filter(|_| is_paused);
        let settled = [self.telling_due(), self.probe_due].into_iter().filter(|_| is_settled);
        settled.chain([self.quiet_ends(), pause_ends]).flatten().min()
    }

    fn is_second_over(&self, now: Instant) -> bool {
        self.second_ends.is_none_or(|end| now >= end)
    }
}

/// The VRRP instance of a virtual MAC, be it for IPv4 or IPv6 (RFC 9568 section 7.3), which moves with the master,
/// unlike a station's.
pub(super) fn virtual_router(mac: Mac) -> Option<u8> {
    match mac {
        [0, 0, 0x5e, 0, 1 | 2, instance] => Some(instance),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_macs_are_those_of_vrrp() {
        for (mac, expected) in [
            ([0, 0, 0x5e, 0, 1, 0], Some(0)),
            ([0, 0, 0x5e, 0, 2, 255], Some(255)),
            ([0, 0, 0x5e, 0, 3, 1], None),
            ([0, 0, 0x5e, 1, 1, 1], None),
            ([2, 0, 0x5e, 0, 1, 1], None),
        ] {
            assert_eq!(virtual_router(mac), expected, "{mac:?}");
        }
    }
}
