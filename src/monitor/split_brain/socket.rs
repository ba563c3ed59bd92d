//! The packet socket: where it listens, and how much is read from it.

use super::SECOND;
use crate::monitor::{Action, Instant};

/// The frames read in a [`SECOND`], and so the wake-ups in a flood. A master that announces itself sends fewer. The
/// kernel drops frames when the socket's queue is full.
const MAX_FRAMES: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Socket {
    /// The interface that receives claims, while the VIP is present, and the link that asks for it.
    pub(super) watched: Option<(u32, Option<u32>)>,
    /// When the socket began to receive there. An earlier frame may be read with the events that say so.
    pub(super) since: Option<Instant>,
    /// The socket may be bound to a deleted interface with the same index.
    pub(super) may_be_unbound: bool,
    reads: bool,
    /// When reading last began or ended, as for a flood.
    turned: Option<Instant>,
    /// The frames since the start of the current second, and its end.
    frames: u32,
    second_ends: Option<Instant>,
    /// When a failed action is tried again. Until then the socket is neither bound nor read anew.
    pub(super) retry_at: Option<Instant>,
}

impl Socket {
    /// Counts a frame.
    pub(super) fn count(&mut self, now: Instant) {
        if self.is_second_over(now) {
            (self.second_ends, self.frames) = (Some(now + SECOND), 0);
        }
        self.frames = self.frames.saturating_add(1);
    }

    /// Handles that an action of the socket failed, which is tried again.
    pub(super) fn handle_failed(&mut self, action: &Action, now: Instant) {
        self.retry_at = Some(now + SECOND);
        match action {
            Action::ReadFrames(_) => self.reads = false,
            _ => self.may_be_unbound = true,
        }
    }

    /// Binds the socket, and starts or stops reading, as the VIP comes and goes.
    pub(super) fn next_action(
        &mut self,
        wanted: Option<(u32, Option<u32>)>,
        now: Instant,
    ) -> Option<Action> {
        self.retry_at.take_if(|at| now >= *at);
        let rests = self.retry_at.is_some();
        let is_new = core::mem::replace(&mut self.watched, wanted) != wanted;
        self.may_be_unbound |= is_new && rests;
        if let Some((ifindex, own)) = wanted
            && (is_new || self.may_be_unbound)
            && !rests
        {
            let rebind = core::mem::take(&mut self.may_be_unbound);
            self.since = Some(now);
            // The link below one with a virtual MAC receives the answers.
            let only = Some(ifindex).filter(|_| own.is_none_or(|own| own == ifindex));
            return Some(Action::WatchClaims { only, rebind });
        }
        let reads = wanted.is_some() && (self.frames < MAX_FRAMES || self.is_second_over(now));
        if reads != self.reads && !(reads && rests) {
            (self.reads, self.turned) = (reads, Some(now));
            return Some(Action::ReadFrames(reads));
        }
        None
    }

    /// Returns whether frames have been read all the time since then. Otherwise an answer may be unread or lost.
    pub(super) fn has_read_since(&self, since: Instant) -> bool {
        self.reads && self.turned.is_none_or(|turned| turned <= since)
    }

    /// Returns when reading goes on after a flood, or after a failure.
    pub(super) fn pause_ends(&self) -> Option<Instant> {
        let pause = self.second_ends.filter(|_| self.watched.is_some() && !self.reads);
        self.retry_at.or(pause)
    }

    fn is_second_over(&self, now: Instant) -> bool {
        self.second_ends.is_none_or(|end| now >= end)
    }
}
