//! One episode: from the first claim to the end of the suspicion or of the split brain.

use core::mem::replace;

use super::SECOND;
use crate::monitor::{Duration, Instant};
use crate::wire::rtnl::Mac;

/// The probes in a row for a verdict.
const ROUND: u8 = 3;
/// The probes without an answer after which everything is announced again.
const SILENT: u8 = 2;
/// The waits after a round without an answer until the next round.
const LATER: [Duration; 3] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(60)];
/// The time between two probes while a split brain lasts.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);
/// A split brain with a station that answers no probe ends after this time without a claim. Answers without a claim
/// for so long may be those of a cache.
pub(super) const QUIET: Duration = Duration::from_secs(30);

/// How a split brain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The station had answered, and does so no longer.
    NoLongerAnswers,
    /// The station has claimed nothing for a while, and has answered no probe.
    NeverAnswered,
    /// The VIP was removed from this router.
    VipRemoved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// This number of rounds has had no answer.
    Suspected { rounds: usize },
    /// The line about it is due then, if the VIP is still present.
    Confirmed { due: Instant },
    /// Its line has been logged.
    Logged,
}

/// What follows from a probe without an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// When to probe next. None: the suspicion is over.
    pub(super) probe_at: Option<Instant>,
    /// The last two probes had no answer: other stations may have to learn our MAC.
    pub(super) is_silent: bool,
    /// The first round had no answer.
    pub(super) is_unconfirmed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Episode {
    pub(super) stage: Stage,
    /// The first station, until the sign of another one confirms the suspicion: the first may have given way.
    pub(super) claimant: Mac,
    pub(super) other: Option<Mac>,
    pub(super) claims: u32,
    /// The first claim, also of an earlier episode that this one continues.
    pub(super) began: Instant,
    /// The first claim of the suspicion.
    pub(super) suspected: Instant,
    /// The last sign.
    pub(super) last: Instant,
    /// The last claim that is no answer, or the line about the begin.
    pub(super) unsolicited: Instant,
    /// The last sign, or the end of a time in which none could come: a stop of the process, or a lost carrier.
    pub(super) quiet_since: Instant,
    /// The station answers probes, as far as these can be sent.
    pub(super) answers: bool,
    /// The probes in a row without a sign.
    unanswered: u8,
}

impl Episode {
    /// Returns an episode that begins with a claim `at` this time.
    pub(super) fn new(claimant: Mac, at: Instant) -> Self {
        Self {
            stage: Stage::Suspected { rounds: 0 },
            claimant,
            other: None,
            claims: 0,
            began: at,
            suspected: at,
            last: at,
            unsolicited: at,
            quiet_since: at,
            answers: false,
            unanswered: 0,
        }
    }

    pub(super) fn is_suspected(&self) -> bool {
        matches!(self.stage, Stage::Suspected { .. })
    }

    pub(super) fn is_logged(&self) -> bool {
        self.stage == Stage::Logged
    }

    /// Handles a claim or an answer, received by the kernel `at` this time. Only one that `is_sure` confirms a suspicion.
    pub(super) fn handle_sign(&mut self, mac: Mac, at: Instant, is_answer: bool, is_sure: bool) {
        self.claims = self.claims.saturating_add(1);
        if mac != self.claimant {
            self.other = Some(mac);
        }
        self.last = self.last.max(at);
        // A claim received before the last probe is no answer to it, but the station was not silent.
        self.quiet_since = self.quiet_since.max(at);
        if is_answer {
            self.answers = true;
        } else {
            self.unsolicited = at;
        }
        // A probe comes a second after the first claim. A claim may be that of a new master, to which this router gives
        // way just now.
        let second = self.suspected + SECOND;
        let due = match self.stage {
            Stage::Logged => return,
            _ if is_answer && at >= second => at,
            Stage::Suspected { .. } if is_sure && at > second => at + SECOND,
            _ => return,
        };
        self.stage = Stage::Confirmed { due };
        if mac != self.claimant {
            self.other = Some(replace(&mut self.claimant, mac));
        }
    }

    /// Starts the silence anew: for a while no answer could come.
    pub(super) fn start_anew(&mut self, now: Instant) {
        (self.quiet_since, self.unanswered) = (now, 0);
    }

    /// Handles a probe, sent at `probed`, without an answer.
    pub(super) fn handle_silence(&mut self, probed: Instant, now: Instant) -> Verdict {
        self.unanswered = self.unanswered.saturating_add(1);
        let is_silent = self.unanswered == SILENT;
        let Stage::Suspected { rounds } = &mut self.stage else {
            return Verdict { probe_at: Some(probed + INTERVAL), is_silent, ..Verdict::default() };
        };
        let is_first = *rounds == 0;
        if self.unanswered < ROUND {
            let (probe_at, is_silent) = (Some(now), is_silent && is_first);
            return Verdict { probe_at, is_silent, is_unconfirmed: false };
        }
        let probe_at = LATER.get(*rounds).map(|wait| now + *wait);
        (self.unanswered, *rounds) = (0, *rounds + 1);
        Verdict { probe_at, is_silent: false, is_unconfirmed: is_first }
    }

    /// Returns how a logged episode has ended, if it has.
    pub(super) fn check_end(&mut self, now: Instant) -> Option<Ending> {
        if !self.is_logged() {
            return None;
        }
        if self.answers {
            return (self.unanswered >= ROUND).then_some(Ending::NoLongerAnswers);
        }
        let end = self.quiet_ends().filter(|end| now >= *end)?;
        if now >= end + SECOND {
            // The process was stopped.
            self.start_anew(now);
            return None;
        }
        Some(Ending::NeverAnswered)
    }

    /// Returns when the episode ends if the station, which answers no probe, claims nothing before.
    pub(super) fn quiet_ends(&self) -> Option<Instant> {
        (self.is_logged() && !self.answers).then_some(self.quiet_since + QUIET)
    }

    /// Returns from when on only a cache may answer.
    pub(super) fn only_cache_since(&self) -> Option<Instant> {
        (self.is_logged() && self.answers).then_some(self.unsolicited + QUIET)
    }
}
