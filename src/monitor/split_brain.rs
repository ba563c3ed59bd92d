//! Split brain: other stations that claim the VIP while it is ours.

use heapless::{Deque, Vec};

use super::journal::Journal;
use super::vip::Vip;
use super::{Action, Duration, Instant, LogEvent};
use crate::wire::Claim;
use crate::wire::rtnl::Mac;

/// Frames that are read in a [`SECOND`], and so how often a flood wakes the daemon. A master that announces itself
/// sends fewer. The kernel drops what has no room in the socket's queue.
const MAX_FRAMES: u32 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// Claims that are told apart. More than one is rare, more than a few is an attack.
const MAX_STATIONS: usize = 16;
/// Lines in a [`PERIOD`], whatever the number of stations.
const MAX_LINES: usize = 16;
/// At most one line about each station in this time.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the VIP has to stay after a claim for that to be worth a line. A master that gives way to
/// another receives its claims some milliseconds before its own VIP goes.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// What it takes to see a split brain.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// The interface on which claims are received, while the VIP is there.
    watched: Option<u32>,
    /// The interface may be another than the one that the socket was bound to, whatever its index.
    may_be_unbound: bool,
    reads: bool,
    /// Frames since the last second began, and when it ends.
    frames: u32,
    second_ends: Option<Instant>,
    claims: Claims,
    claimant: Option<Mac>,
}

impl Detector {
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
            self.claimant = Some(claim.mac);
            self.claims.handle_claim(claim.mac, now);
        }
    }

    pub(super) fn claimant(&self) -> Option<Mac> {
        self.claimant
    }

    /// `wanted` is the interface to be watched, while the VIP is there. A claim is logged only if it `is_certain` that
    /// it still is.
    pub(super) fn next_action(
        &mut self,
        wanted: Option<u32>,
        is_certain: bool,
        now: Instant,
    ) -> Option<Action> {
        let is_new = wanted != self.watched;
        if is_new {
            self.watched = wanted;
            self.claims.handle_vip_gone();
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
        let ifindex = wanted.filter(|_| is_certain)?;
        self.claims.next_line(ifindex, now).map(Action::Log)
    }

    /// While it is not settled whether the VIP is here, no claim is logged.
    pub(super) fn deadline(&self, is_settled: bool) -> Option<Instant> {
        let is_paused = self.watched.is_some() && !self.reads;
        let line = self.claims.deadline().filter(|_| is_settled);
        line.into_iter().chain(self.second_ends.filter(|_| is_paused)).min()
    }

    fn is_second_over(&self, now: Instant) -> bool {
        self.second_ends.is_none_or(|end| now >= end)
    }
}

#[derive(Debug)]
struct Station {
    mac: Mac,
    claims: u32,
    /// When to write a line, unless the VIP goes before.
    due: Option<Instant>,
    last: Option<Instant>,
}

/// The stations that have claimed the VIP, and the lines still to be written about them.
#[derive(Debug, Default)]
struct Claims {
    stations: Vec<Station, MAX_STATIONS>,
    /// Claims for which there was no room or no line.
    others: u32,
    others_due: Option<Instant>,
    /// When the lines of the last [`PERIOD`] were written.
    lines: Deque<Instant, MAX_LINES>,
}

impl Claims {
    fn handle_claim(&mut self, mac: Mac, now: Instant) {
        let Some(station) = self.station(mac) else {
            self.others = self.others.saturating_add(1);
            self.others_due.get_or_insert(now + CONFIRMATION);
            return;
        };
        station.claims = station.claims.saturating_add(1);
        if station.last.is_none_or(|last| now >= last + PERIOD) {
            station.due.get_or_insert(now + CONFIRMATION);
        }
    }

    /// Returns the entry of a station. Without room a new one replaces the one with the oldest line, but none
    /// with a line still to be written: with too many stations none would ever be.
    fn station(&mut self, mac: Mac) -> Option<&mut Station> {
        let known = self.stations.iter().position(|station| station.mac == mac);
        if let Some(known) = known {
            return self.stations.get_mut(known);
        }
        let new = Station { mac, claims: 0, due: None, last: None };
        if let Err(new) = self.stations.push(new) {
            let silent = self.stations.iter_mut().filter(|station| station.due.is_none());
            let station = silent.min_by_key(|station| station.last)?;
            *station = new;
            return Some(station);
        }
        self.stations.last_mut()
    }

    /// Handles the loss of the VIP: others may claim it now.
    fn handle_vip_gone(&mut self) {
        for station in &mut self.stations {
            (station.claims, station.due) = (0, None);
        }
        (self.others, self.others_due) = (0, None);
    }

    fn next_line(&mut self, ifindex: u32, now: Instant) -> Option<LogEvent> {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| now >= due);
        while let Some(station) = self.stations.iter_mut().find(|station| is_due(station.due)) {
            station.due = None;
            let count = core::mem::take(&mut station.claims);
            if may_write(&mut self.lines, now) {
                station.last = Some(now);
                return Some(LogEvent::SplitBrain { mac: station.mac, ifindex, count });
            }
            self.others = self.others.saturating_add(count);
            self.others_due.get_or_insert(now);
        }
        if is_due(self.others_due) && may_write(&mut self.lines, now) {
            self.others_due = None;
            let count = core::mem::take(&mut self.others);
            return Some(LogEvent::MoreClaims { ifindex, count });
        }
        None
    }

    fn deadline(&self) -> Option<Instant> {
        let free = self.lines.front().filter(|_| self.lines.is_full()).map(|line| *line + PERIOD);
        let others = self.others_due.map(|due| free.map_or(due, |free| free.max(due)));
        self.stations.iter().filter_map(|station| station.due).chain(others).min()
    }
}

/// Uses up one of the [`MAX_LINES`]. Returns whether there was one left.
fn may_write(lines: &mut Deque<Instant, MAX_LINES>, now: Instant) -> bool {
    while lines.front().is_some_and(|line| now >= *line + PERIOD) {
        lines.pop_front();
    }
    lines.push_back(now).is_ok()
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

    fn mac(n: u8) -> Mac {
        [2, 0, 0, 0, 0, n]
    }

    #[test]
    fn the_one_with_the_oldest_line_is_forgotten() {
        let at = Instant::from_secs;
        let mut stations = Claims::default();
        for n in 0..=16 {
            stations.handle_claim(mac(n), at(n.into()));
            stations.next_line(5, at(i64::from(n) + 1));
        }
        let known: heapless::Vec<Mac, 16> =
            stations.stations.iter().map(|known| known.mac).collect();
        assert!(!known.contains(&mac(0)) && (1..=16).all(|n| known.contains(&mac(n))), "{known:?}");
    }
}
