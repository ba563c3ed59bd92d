//! What a split brain, or a suspicion, has done to others, and how that is mended.

use super::Step;
use crate::monitor::{Duration, Instant};

/// The shortest and the longest time between two announcements of everything, so that two routers that cannot ask each
/// other do not divert traffic all the time.
const BETWEEN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];
/// The least time between two announcements for the sake of a cache, and between two repetitions for agent and hook.
const REPEATED: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// Whether anything is announced.
    announces: bool,
    /// When everything is to be announced.
    due: Option<Instant>,
    /// When everything was last announced, and the least time until the next.
    announced: Option<(Instant, Duration)>,
    /// Everything has been announced, and no sign of the other station has come since.
    is_announcing: bool,
    stop: bool,
    /// A switch has learnt our MAC from another station's answer.
    pub(super) switch_is_wrong: bool,
    /// When the VIP was last announced for the sake of a cache.
    refreshed: Option<Instant>,
    /// Agent and hook have to get the state again, and when they last did. They do so once no other station has the VIP.
    pub(super) deliver_again: bool,
    delivered: Option<Instant>,
}

impl Aftermath {
    pub(super) fn new(announces: bool) -> Self {
        Self { announces, ..Self::default() }
    }

    /// Forgets what is pending, as the VIP is gone.
    pub(super) fn cancel(&mut self) {
        (self.due, self.is_announcing, self.stop) = (None, false, false);
        (self.switch_is_wrong, self.deliver_again) = (false, false);
    }

    /// Schedules an announcement of everything.
    pub(super) fn schedule(&mut self, now: Instant) {
        let earliest = self.announced.map_or(now, |(last, wait)| last + wait);
        self.due = self.announces.then_some(earliest.max(now));
    }

    /// Handles a sign of the other station, which has the VIP for now.
    pub(super) fn handle_sign(&mut self) {
        (self.due, self.deliver_again) = (None, false);
        self.stop |= core::mem::take(&mut self.is_announcing);
    }

    /// Returns what is due. From `only_cache_since` on a cache may answer instead of the other station.
    pub(super) fn next_step(
        &mut self,
        only_cache_since: Option<Instant>,
        now: Instant,
    ) -> Option<Step> {
        if self.deliver_due().is_some_and(|due| now >= due) {
            (self.deliver_again, self.delivered) = (false, Some(now));
            return Some(Step::DeliverAgain);
        }
        if self.due.take_if(|due| now >= *due).is_some() {
            let [shortest, longest] = BETWEEN;
            let doubled = |(last, wait): (Instant, Duration)| {
                if now >= last + longest * 2 { shortest } else { longest.min(wait * 2) }
            };
            self.announced = Some((now, self.announced.map_or(shortest, doubled)));
            self.is_announcing = true;
            return Some(Step::AnnounceEverything);
        }
        if core::mem::take(&mut self.stop) {
            return Some(Step::StopAnnouncing);
        }
        if self.refresh_due(only_cache_since).is_some_and(|due| now >= due) {
            self.refreshed = Some(now);
            return Some(Step::AnnounceVip);
        }
        let is_wrong = core::mem::take(&mut self.switch_is_wrong);
        (is_wrong && self.announces).then_some(Step::AnnounceVip)
    }

    /// Returns when to deliver the state again.
    fn deliver_due(&self) -> Option<Instant> {
        let earliest = self.delivered.map_or(Instant::ZERO, |delivered| delivered + REPEATED);
        self.deliver_again.then_some(earliest)
    }

    /// Returns when to announce the VIP because only a cache may answer.
    fn refresh_due(&self, only_cache_since: Option<Instant>) -> Option<Instant> {
        let since = only_cache_since.filter(|_| self.announces)?;
        Some(self.refreshed.map_or(since, |refreshed| since.max(refreshed + REPEATED)))
    }

    pub(super) fn deadline(&self, only_cache_since: Option<Instant>) -> Option<Instant> {
        [self.due, self.deliver_due(), self.refresh_due(only_cache_since)]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds at which everything is announced, if silence follows a sign at each of these.
    fn announced_at(silences: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut aftermath = Aftermath::new(true);
        let mut announced = Vec::new();
        for second in silences {
            let now = Instant::ZERO + Duration::from_secs(second);
            aftermath.handle_sign();
            aftermath.schedule(now);
            if matches!(aftermath.next_step(None, now), Some(Step::AnnounceEverything)) {
                announced.push(second);
            }
        }
        announced
    }

    #[test]
    fn announcements_become_rarer_and_after_a_rest_frequent_again() {
        let often = announced_at((0..4000).step_by(10));
        assert_eq!(often, [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300, 3900]);
    }

    #[test]
    fn sign_cancels_and_stops() {
        let mut aftermath = Aftermath::new(true);
        aftermath.schedule(Instant::ZERO);
        aftermath.handle_sign();
        assert!(aftermath.next_step(None, Instant::ZERO).is_none());
        aftermath.schedule(Instant::ZERO);
        assert!(matches!(aftermath.next_step(None, Instant::ZERO), Some(Step::AnnounceEverything)));
        aftermath.handle_sign();
        assert!(matches!(aftermath.next_step(None, Instant::ZERO), Some(Step::StopAnnouncing)));
        assert!(aftermath.next_step(None, Instant::ZERO).is_none());
    }
}
