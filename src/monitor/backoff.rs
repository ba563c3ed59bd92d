//! How long to wait before the next try.

use super::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The longest wait after the first time that the backlog was full.
const FIRST_WHEN_FULL: Duration = Duration::from_millis(10);

/// A wait that doubles with every failure, from 100 ms to 5 s.
///
/// A tenth to a half is taken off at random, so that hundreds of routers that lost the same agent
/// at the same moment do not come back in step, and so that an agent that returns is found within
/// 5 s with time to spare.
#[derive(Debug)]
pub(super) struct Backoff {
    base: Duration,
    /// Since when the agent's backlog has been full at every attempt.
    full_since: Option<Instant>,
    random: u32,
}

impl Backoff {
    /// `seed` should differ between processes.
    pub(super) fn new(seed: u32) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self { base: FIRST, full_since: None, random: seed.max(1) }
    }

    pub(super) fn after_failure(&mut self, now: Instant) -> Instant {
        self.full_since = None;
        let base = self.base;
        self.base = (base * 2).min(LONGEST);
        now + self.between(base / 2, base * 9 / 10)
    }

    /// When to try again after the agent's backlog was full at `now`: after between a 20th and an 8th of the time
    /// for which it has been.
    ///
    /// When hundreds of routers fail over together, most find it full, and the kernel wakes nobody whose nonblocking
    /// `connect` it has refused (`unix_stream_connect` in `net/unix/af_unix.c`). So each takes at most an eighth
    /// longer than if it had queued, however many there are and however slow the agent is. After the first second an
    /// agent that stays full has less than 20 attempts a second from each.
    pub(super) fn after_full_backlog(&mut self, now: Instant) -> Instant {
        let since = *self.full_since.get_or_insert(now);
        let longest = ((now - since) / 8).clamp(FIRST_WHEN_FULL, LONGEST);
        now + self.between(longest * 2 / 5, longest)
    }

    fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + (longest - shortest) * (self.next_random() % 1001) / 1000
    }

    pub(super) fn reset(&mut self) {
        (self.base, self.full_since) = (FIRST, None);
    }

    /// Marsaglia's xorshift32.
    fn next_random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_xorshift32() {
        let mut backoff = Backoff::new(0);
        let numbers = [(); 4].map(|()| backoff.next_random());
        assert_eq!(numbers, [270_369, 67_634_689, 2_647_435_461, 307_599_695]);
    }

    #[test]
    fn doubles_from_100_ms_to_5_s_with_jitter() {
        let bases = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000];
        for seed in 0..1000 {
            let mut backoff = Backoff::new(seed);
            for base in bases {
                let wait = (backoff.after_failure(Instant::ZERO) - Instant::ZERO).total_millis();
                assert!((base / 2..=base * 9 / 10).contains(&wait), "{wait} ms of {base} ms");
            }
            backoff.reset();
            assert!(backoff.after_failure(Instant::ZERO) < Instant::from_millis(100));
        }
    }

    #[test]
    fn full_backlog_is_tried_again_soon_and_ever_less_often() {
        for seed in 0..1000 {
            let (mut backoff, mut now) = (Backoff::new(seed), Instant::ZERO);
            let mut waits = std::vec::Vec::new();
            while now < Instant::from_secs(100) {
                let next = backoff.after_full_backlog(now);
                waits.push((now.total_micros(), next.total_micros() - now.total_micros()));
                now = next;
            }
            for (since, wait) in waits {
                let longest = (since / 8).clamp(10_000, 5_000_000);
                assert!((longest * 2 / 5..=longest).contains(&wait), "{wait} us after {since}");
                assert!(since < 1_000_000 || wait >= 50_000, "20 a second");
            }
            assert!(backoff.after_failure(now) < now + Duration::from_millis(100));
            assert!(backoff.after_full_backlog(now) <= now + Duration::from_millis(10), "anew");
        }
    }
}
