//! When to ask the kernel for everything again, and what to do if it does not answer.

use super::backoff::Backoff;
use super::{Duration, Instant};
use crate::errno::Errno;

/// A dump that has not ended after this long has failed.
const DUMP_TIMEOUT: Duration = Duration::from_secs(5);

/// What one dump lists; the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DumpKind {
    /// Addresses of another interface, to be announced.
    Others,
    /// Addresses of the watched interface.
    Addresses,
    /// The watched interface, by its name.
    Interface,
    /// Links, after which the addresses follow.
    Links,
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DumpResult {
    /// All was listed.
    Complete,
    /// The kernel's tables changed meanwhile (`NLM_F_DUMP_INTR`): what was listed has gaps.
    Interrupted,
    /// A part of it could not be read.
    Unreadable,
    /// It could not be asked for, or the kernel refused.
    Failed(Errno),
    /// No end came.
    TimedOut,
}

impl DumpResult {
    /// How many kinds there are.
    pub(super) const KINDS: usize = 5;

    /// Tells the kinds apart, without what they carry: below [`DumpResult::KINDS`].
    pub(super) fn kind(self) -> usize {
        match self {
            Self::Complete => 0,
            Self::Interrupted => 1,
            Self::Unreadable => 2,
            Self::Failed(_) => 3,
            Self::TimedOut => 4,
        }
    }
}

/// One dump at a time, the next as soon as the queue is empty.
///
/// A netlink socket carries one dump at a time (`EBUSY`). After an overrun the kernel drops every
/// event until the queue is empty, so a dump asked for earlier would leave a gap behind it.
#[derive(Debug)]
pub(super) struct Resync {
    /// What has yet to be listed.
    wanted: Option<DumpKind>,
    not_before: Instant,
    running: Option<(DumpKind, Instant)>,
    /// A part of the dump under way could not be read.
    spoilt: bool,
    backoff: Backoff,
}

impl Resync {
    /// Everything is to be listed.
    pub(super) fn new(seed: u32) -> Self {
        Self {
            wanted: Some(DumpKind::Links),
            not_before: Instant::ZERO,
            running: None,
            spoilt: false,
            backoff: Backoff::new(seed),
        }
    }

    /// Asks for a dump of this, and of what follows from it.
    pub(super) fn want(&mut self, stage: DumpKind) {
        self.wanted = self.wanted.max(Some(stage));
    }

    /// Something could not be read. If that is part of a dump, the dump is worth nothing, and the
    /// next will hardly do better soon.
    pub(super) fn spoil(&mut self) {
        self.spoilt = self.running.is_some();
        self.want(DumpKind::Links);
    }

    /// The dump to ask for now, given that the queue is empty.
    pub(super) fn begin(&mut self, now: Instant) -> Option<DumpKind> {
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let stage = self.wanted.take()?;
        self.running = Some((stage, now + DUMP_TIMEOUT));
        Some(stage)
    }

    /// Takes the end of the dump under way; tells which one that was, and how it really ended.
    pub(super) fn end(&mut self, end: DumpResult, now: Instant) -> Option<(DumpKind, DumpResult)> {
        let (stage, _) = self.running.take()?;
        let spoilt = core::mem::take(&mut self.spoilt) && end == DumpResult::Complete;
        let end = if spoilt { DumpResult::Unreadable } else { end };
        if end == DumpResult::Complete {
            self.backoff.reset();
        } else {
            self.want(stage);
            self.not_before = self.backoff.after_failure(now);
        }
        Some((stage, end))
    }

    /// Whether the dump under way should have ended by now.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.running.is_some_and(|(_, deadline)| now >= deadline)
    }

    /// Whether nothing is left to be listed.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted.is_none() && self.running.is_none()
    }

    /// Whether the state may be another than it seems: what tells of it has yet to be listed.
    pub(super) fn is_state_in_doubt(&self) -> bool {
        self.wanted.max(self.stage()) >= Some(DumpKind::Addresses)
    }

    /// What is being listed.
    pub(super) fn stage(&self) -> Option<DumpKind> {
        self.running.map(|(stage, _)| stage)
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.running {
            Some((_, deadline)) => Some(deadline),
            None => self.wanted.map(|_| self.not_before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::ZERO;

    #[test]
    fn begins_with_everything_and_one_dump_at_a_time() {
        let mut resync = Resync::new(1);
        assert_eq!(resync.begin(T0), Some(DumpKind::Links));
        assert_eq!(resync.begin(T0), None);
        resync.want(DumpKind::Addresses);
        assert_eq!(resync.begin(T0), None);
        assert_eq!(
            resync.end(DumpResult::Complete, T0),
            Some((DumpKind::Links, DumpResult::Complete))
        );
        assert_eq!(resync.begin(T0), Some(DumpKind::Addresses));
        assert_eq!(
            resync.end(DumpResult::Complete, T0),
            Some((DumpKind::Addresses, DumpResult::Complete))
        );
        assert!(resync.is_settled());
        assert_eq!(resync.deadline(), None);
    }

    #[test]
    fn failed_dump_is_tried_again_after_a_wait() {
        for end in [DumpResult::Interrupted, DumpResult::TimedOut, DumpResult::Failed(Errno(16))] {
            let mut resync = Resync::new(1);
            resync.begin(T0);
            resync.end(end, T0);
            assert_eq!(resync.begin(T0), None);
            let again = resync.deadline().unwrap();
            assert!(again > T0);
            assert_eq!(resync.begin(again), Some(DumpKind::Links));
        }
    }

    #[test]
    fn what_is_wanted_during_a_dump_follows_it() {
        let mut resync = Resync::new(1);
        resync.begin(T0);
        resync.want(DumpKind::Links);
        resync.end(DumpResult::Complete, T0);
        assert!(!resync.is_settled());
        assert_eq!(resync.begin(T0), Some(DumpKind::Links));
    }

    #[test]
    fn dump_with_an_unreadable_part_is_worth_nothing() {
        let mut resync = Resync::new(1);
        resync.begin(T0);
        resync.spoil();
        let end = resync.end(DumpResult::Complete, T0);
        assert_eq!(end, Some((DumpKind::Links, DumpResult::Unreadable)));
        assert_eq!(resync.begin(T0), None, "not at once");
        assert_eq!(resync.begin(resync.deadline().unwrap()), Some(DumpKind::Links));
        assert_eq!(
            resync.end(DumpResult::Complete, T0),
            Some((DumpKind::Links, DumpResult::Complete)),
            "the next is a new one"
        );
    }

    #[test]
    fn dump_without_end_is_overdue() {
        let mut resync = Resync::new(1);
        assert!(!resync.is_overdue(T0 + DUMP_TIMEOUT));
        resync.begin(T0);
        assert!(!resync.is_overdue(T0));
        assert_eq!(resync.deadline(), Some(T0 + DUMP_TIMEOUT));
        assert!(resync.is_overdue(T0 + DUMP_TIMEOUT));
        let end = resync.end(DumpResult::TimedOut, T0 + DUMP_TIMEOUT);
        assert_eq!(end, Some((DumpKind::Links, DumpResult::TimedOut)));
    }
}
