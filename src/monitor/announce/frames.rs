//! Frames: the choice of the next one, and the progress of its rounds.

use super::links::AnnounceLink;
use super::pending::{PendingAnnouncement, Progress, Rank};
use super::{AddressKey, Announcer, Tables};
use crate::errno::Errno;
use crate::monitor::journal::Journal;
use crate::monitor::{Action, Counters, Duration, Instant, LimitedEvent};

/// Frames in a row, before events, reports and signals are looked at. On a bridge of 200 ports they take 16 ms.
const MAX_BURST: u32 = 32;

/// The waits before a frame is sent again on a link whose queue is full: the first, which doubles, and the longest.
const FULL_QUEUE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];
/// How long to try a frame, from when it is due and its link is full. Then the next round serves as retry.
const PATIENCE: Duration = Duration::from_secs(1);

/// How late a frame may be for the next ones to make up for it. After a stop of the process none does.
const LATENESS: Duration = Duration::from_millis(100);

/// A link whose queue is full.
#[derive(Debug)]
pub(super) struct Blocked {
    ifindex: u32,
    since: Instant,
    until: Instant,
    wait: Duration,
}

impl Announcer<'_> {
    /// Returns the frame that is due. Its result goes to [`Announcer::handle_sent`].
    pub(in crate::monitor) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.burst >= MAX_BURST || self.deadline().is_none_or(|due| now < due) {
            return None;
        }
        while let Some(index) = self.find_due(now) {
            self.cursor = index;
            let Tables { links, entries } = &mut *self.tables;
            let entry = entries.get_mut(index)?;
            match links.get(entry.address.ifindex).filter(|link| link.up) {
                None if self.links_missing => entry.progress = Progress::Waiting,
                // The addresses of a link that comes up are listed.
                None => {
                    entries.swap_remove(index);
                }
                // It waits until the MAC of the watched interface or of the link changes.
                Some(link) if !link.belongs_to(self.watched, self.instance) => {
                    entry.progress = Progress::Waiting;
                }
                Some(link) => {
                    self.burst += 1;
                    return Some(Action::SendFrame(entry.frame(link)));
                }
            }
        }
        self.schedule(now);
        None
    }

    /// Returns when a frame is due: not before its link is tried again.
    fn due(&self, entry: &PendingAnnouncement) -> Instant {
        let blocked = self.blocked.iter().find(|blocked| blocked.ifindex == entry.address.ifindex);
        blocked.map_or(entry.due, |blocked| blocked.until.max(entry.due))
    }

    fn schedule(&mut self, now: Instant) {
        let announcing = |entry: &&PendingAnnouncement| entry.progress == Progress::Announcing;
        let entries = self.tables.entries.iter().filter(announcing);
        self.next_due = entries.map(|entry| self.due(entry)).min();
        self.rank = Rank::default();
        self.forget_done(now);
        self.blocked.retain(|blocked| now < blocked.until + PATIENCE);
    }

    fn find_due(&mut self, now: Instant) -> Option<usize> {
        let entries = &self.tables.entries;
        let is_due = |index: &usize, rank| {
            entries.get(*index).is_some_and(|entry| {
                entry.progress == Progress::Announcing
                    && entry.rank() == rank
                    && self.due(entry) <= now
            })
        };
        for rank in Rank::ALL.into_iter().filter(|rank| *rank >= self.rank) {
            let mut indices = (self.cursor..entries.len()).chain(0..self.cursor);
            if let Some(found) = indices.find(|index| is_due(index, rank)) {
                self.rank = rank;
                return Some(found);
            }
        }
        None
    }

    /// Handles the result of sending a frame. After a failure the remaining rounds serve as retries.
    pub(in crate::monitor) fn handle_sent(
        &mut self,
        address: AddressKey,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        let due = self.tables.entries.get(self.cursor).map_or(now, |entry| entry.due);
        if self.handle_full_queue(address.ifindex, due, result, now) {
            return;
        }
        let link = self.tables.links.get(address.ifindex);
        if let Some(AnnounceLink { name: interface, .. }) = link
            && let Err(errno) = result
        {
            let event = LimitedEvent::NotAnnounced { interface: *interface, errno };
            journal.log_limited(event, now);
            self.failing = Some(address.ifindex);
        } else if self.failing.take_if(|failing| *failing == address.ifindex).is_some() {
            journal.end_failures(|event| matches!(event, LimitedEvent::NotAnnounced { .. }));
        }
        let Counters { announcements, announcement_failures, .. } = &mut journal.counters;
        *(if result.is_ok() { announcements } else { announcement_failures }) += 1;
        self.advance(address, now);
    }

    /// Handles that the queue of a link may be full: the ring of a network card, or the socket's buffer. Returns whether to
    /// try the frame, which was due at `due`, again. Other links go on.
    fn handle_full_queue(
        &mut self,
        ifindex: u32,
        due: Instant,
        result: Result<(), Errno>,
        now: Instant,
    ) -> bool {
        let [first, longest] = FULL_QUEUE;
        let is_full = result == Err(Errno::TRY_AGAIN);
        let Some(known) = self.blocked.iter_mut().find(|blocked| blocked.ifindex == ifindex) else {
            let new = Blocked { ifindex, since: now, until: now + first, wait: first };
            return is_full && self.blocked.push(new).is_ok();
        };
        if is_full && now < known.since.max(due) + PATIENCE {
            known.wait = (known.wait * 2).min(longest);
            known.until = now + known.wait;
            return true;
        }
        if !is_full {
            self.blocked.retain(|blocked| blocked.ifindex != ifindex);
        }
        false
    }

    pub(super) fn advance(&mut self, address: AddressKey, now: Instant) {
        // The cursor is at the entry of the last frame. A result for another address is ignored.
        let entry = self.tables.entries.get_mut(self.cursor);
        let Some(entry) = entry.filter(|entry| entry.address == address) else { return };
        if address.ip.is_ipv4() && !entry.replying {
            // The reply follows the request at once.
            entry.replying = true;
            return;
        }
        let due = self.not_before.max(entry.due);
        let is_late = due + LATENESS < now;
        self.not_before = if is_late { now } else { due } + self.timing.interval;
        entry.rounds = entry.rounds.saturating_sub(1);
        (entry.is_later, entry.replying) = (true, false);
        entry.due = now + self.timing.delay;
        if entry.rounds == 0 {
            entry.progress = Progress::Done;
        }
        self.cursor += 1;
    }

    /// Returns when the next frame is due.
    pub(in crate::monitor) fn deadline(&self) -> Option<Instant> {
        let due = self.next_due.map(|due| due.max(self.not_before));
        let round = self.again.filter(|_| !self.is_listing()).map(|again| again.due);
        due.into_iter().chain(round).min()
    }
}
