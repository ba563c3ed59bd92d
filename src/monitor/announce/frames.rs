//! Frames: the choice of the next one, and the progress of its rounds.

use core::num::NonZeroU8;

use super::links::{AnnounceLink, Relist};
use super::pending::{PendingAnnouncement, Progress};
use super::{AddressKey, Announcer, Tables};
use crate::errno::Errno;
use crate::monitor::journal::Journal;
use crate::monitor::{Action, Counters, Instant, LimitedEvent};

impl Announcer<'_> {
    /// Returns the frame that is due. Its result goes to [`Announcer::handle_sent`].
    pub(in crate::monitor) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.deadline().filter(|due| now >= *due)?;
        while let Some(index) = self.find_due(now) {
            self.cursor = index;
            let Tables { links, entries } = &mut *self.tables;
            let entry = entries.get_mut(index)?;
            match links.get(entry.address.ifindex) {
                None => {
                    entries.swap_remove(index);
                }
                // It waits until the MAC of the watched interface or of the link changes.
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

    /// Handles the result of sending a frame. The remaining rounds serve as retries.
    pub(in crate::monitor) fn handle_sent(
        &mut self,
        address: AddressKey,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
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

    pub(super) fn advance(&mut self, address: AddressKey, now: Instant) {
        // The cursor is at the entry of the last frame. A result for another address is ignored.
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

    /// Returns when the next frame is due. None is, while lost events may have removed links or addresses.
    pub(in crate::monitor) fn deadline(&self) -> Option<Instant> {
        let is_known = self.links_known && self.relist == Relist::No;
        self.next_due.filter(|_| is_known).map(|due| due.max(self.not_before))
    }
}
