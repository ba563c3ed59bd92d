//! Split brain: other stations claim the VIP while this router is active.
//!
//! Their claims form an episode. It is logged if the VIP is still present some time after the first claim. A master that
//! gives way also receives claims, just before it loses the VIP. An episode ends after a time without claims, or
//! when the VIP is removed. Some stations claim an address only when they get it; probes make them claim it again.

use heapless::Deque;

use super::journal::Journal;
use super::vip::Vip;
use super::{Action, Duration, Instant, LogEvent};
use crate::wire::Claim;
use crate::wire::rtnl::Mac;

/// The frames read in a [`SECOND`], and so the wake-ups in a flood. A master that announces itself sends fewer. The
/// kernel drops frames when the socket's queue is full.
const MAX_FRAMES: u32 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// The time from the first claim to the line about it, if the VIP is still present. A master that gives way receives
/// claims some milliseconds before it loses its VIP. The first probe waits as long: the old master may still answer.
const CONFIRMATION: Duration = SECOND;
/// An episode ends after this time without a claim.
const QUIET: Duration = Duration::from_secs(30);
/// The number of successive probes that may be lost during an episode.
const LOST_PROBES: u32 = 3;

/// Episodes logged in a [`PERIOD`]. With the ends of these and of an earlier one they make 15 lines.
const MAX_EPISODES: usize = 7;
const PERIOD: Duration = Duration::from_secs(60);

/// A probe for other stations with the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The index of the interface that sends it.
    pub ifindex: u32,
    /// The interface's current MAC.
    pub mac: Mac,
    /// The destination of the answer to an ARP probe: broadcast if both masters may have this MAC, because no switch
    /// forwards a frame from a MAC to itself.
    pub answer_to: Mac,
}

#[derive(Debug)]
struct Episode {
    /// The first station of the episode.
    claimant: Mac,
    claims: u32,
    began: Instant,
    last: Instant,
    /// The last claim, or the end of a stop of the process, during which no probe was sent, and claims were not read.
    quiet_since: Instant,
    is_logged: bool,
}

/// Detects a split brain.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// The time between probes, if any are sent, and when the next is due.
    probe_interval: Option<Duration>,
    probe_due: Option<Instant>,
    /// The interface that receives claims, while the VIP is present.
    watched: Option<u32>,
    /// The socket may be bound to a deleted interface with the same index.
    may_be_unbound: bool,
    reads: bool,
    /// The frames since the start of the current second, and its end.
    frames: u32,
    second_ends: Option<Instant>,
    episode: Option<Episode>,
    /// When the last episodes were logged.
    logged: Deque<Instant, MAX_EPISODES>,
}

impl Detector {
    pub(super) fn new(probe_interval: Option<Duration>) -> Self {
        Self { probe_interval, ..Self::default() }
    }

    /// Requests a new binding of the socket: the watched interface may be a new one with the same index.
    pub(super) fn handle_interface_change(&mut self) {
        self.may_be_unbound = true;
    }

    /// Counts a frame, and handles the claim in it. The socket does not receive the daemon's own frames, so a claim from a
    /// virtual MAC is another station's, even if the watched interface has that MAC.
    pub(super) fn handle_frame(
        &mut self,
        claim: Option<(u32, Claim)>,
        vip: &Vip,
        journal: &mut Journal,
        now: Instant,
    ) {
        if self.is_second_over(now) {
            (self.second_ends, self.frames) = (Some(now + SECOND), 0);
        }
        self.frames = self.frames.saturating_add(1);
        let Some((ifindex, claim)) = claim else { return };
        let is_of_vip = self.watched == Some(ifindex) && claim.ip == vip.ip();
        let is_foreign = |own: Mac| claim.mac != own || virtual_router(claim.mac).is_some();
        if is_of_vip && vip.mac().is_some_and(is_foreign) {
            journal.counters.claims += 1;
            let (claimant, began) = (claim.mac, now);
            let (last, quiet_since) = (now, now);
            let new = Episode { claimant, claims: 0, began, last, quiet_since, is_logged: false };
            let episode = self.episode.get_or_insert(new);
            episode.claims = episode.claims.saturating_add(1);
            (episode.last, episode.quiet_since) = (now, now);
        }
    }

    /// Returns the first station of the current episode, once that has been logged.
    pub(super) fn claimant(&self) -> Option<Mac> {
        self.logged_episode().map(|episode| episode.claimant)
    }

    /// Returns the next action. `wanted` is the interface to watch, while the VIP is present, and `mac` its MAC. An
    /// episode is logged, and a probe sent, only if the state `is_current`: the VIP is still present.
    pub(super) fn next_action(
        &mut self,
        wanted: Option<u32>,
        mac: Option<Mac>,
        is_current: bool,
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
        if let Some(end) = self.quiet_ends().filter(|end| now >= *end) {
            let was_stopped = now >= end + SECOND;
            let Some(episode) = self.episode.as_mut().filter(|_| was_stopped) else {
                return self.end_episode();
            };
            episode.quiet_since = now;
        }
        let ifindex = wanted.filter(|_| is_current)?;
        self.log_episode(ifindex, now).or_else(|| self.probe(ifindex, mac, now))
    }

    /// Logs the current episode, if that is due.
    fn log_episode(&mut self, ifindex: u32, now: Instant) -> Option<Action> {
        self.log_due().filter(|due| now >= *due)?;
        let episode = self.episode.as_mut()?;
        episode.is_logged = true;
        if self.logged.is_full() {
            self.logged.pop_front();
        }
        let _ = self.logged.push_back(now);
        Some(Action::Log(LogEvent::SplitBrain { mac: episode.claimant, ifindex }))
    }

    /// Ends the current episode. Returns the line about its end, if its start has been logged.
    fn end_episode(&mut self) -> Option<Action> {
        let Episode { claimant: mac, claims, began, last, is_logged, .. } = self.episode.take()?;
        let lasted = last - began;
        is_logged.then_some(Action::Log(LogEvent::SplitBrainOver { mac, claims, lasted }))
    }

    fn probe(&mut self, ifindex: u32, mac: Option<Mac>, now: Instant) -> Option<Action> {
        self.probe_due.filter(|due| now >= *due)?;
        self.probe_due = self.probe_interval.map(|interval| now + interval);
        let mac = mac?;
        let answer_to = if virtual_router(mac).is_some() { [0xff; 6] } else { mac };
        Some(Action::SendProbe(Probe { ifindex, mac, answer_to }))
    }

    fn logged_episode(&self) -> Option<&Episode> {
        self.episode.as_ref().filter(|episode| episode.is_logged)
    }

    /// Returns when to log the current episode, if that is pending.
    fn log_due(&self) -> Option<Instant> {
        let pending = self.episode.as_ref().filter(|episode| !episode.is_logged)?;
        let oldest = self.logged.front().filter(|_| self.logged.is_full());
        oldest.map(|logged| *logged + PERIOD).max(Some(pending.began + CONFIRMATION))
    }

    /// Returns when the logged episode ends, unless another claim comes before.
    fn quiet_ends(&self) -> Option<Instant> {
        let probes = self.probe_interval.map(|interval| interval * LOST_PROBES + CONFIRMATION);
        Some(self.logged_episode()?.quiet_since + QUIET.max(probes.unwrap_or(QUIET)))
    }

    /// Returns the next deadline. Unless the state `is_known`, no line or probe is due.
    pub(super) fn deadline(&self, is_known: bool) -> Option<Instant> {
        let is_paused = self.watched.is_some() && !self.reads;
        let pause_ends = self.second_ends.filter(|_| is_paused);
        let due = [self.log_due(), self.probe_due].into_iter().filter(|_| is_known);
        due.chain([self.quiet_ends(), pause_ends]).flatten().min()
    }

    fn is_second_over(&self, now: Instant) -> bool {
        self.second_ends.is_none_or(|end| now >= end)
    }
}

/// Returns the VRRP instance of a virtual MAC for IPv4 or IPv6 (RFC 9568 section 7.3), which moves with the master.
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
    fn similar_macs_are_not_virtual() {
        let similar = [[0, 0, 0x5e, 0, 3, 1], [0, 0, 0x5e, 1, 1, 1], [2, 0, 0x5e, 0, 1, 1]];
        assert_eq!(similar.map(virtual_router), [None; 3]);
    }
}
