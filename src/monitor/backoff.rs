//! How long to wait before the next try.

use super::{Duration, Instant};

/// The wait after the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5);
/// How often in a row a full backlog is tried again at once, before the waits of any other failure.
///
/// When hundreds of routers fail over together, most find it full. An attempt waits its turn in the kernel, and
/// ends now and then only for us to look at what else has happened.
const BACKLOG_TRIES: u8 = 4;
/// At once, but not in the same turn.
const AT_ONCE: Duration = Duration::from_millis(1);

/// A wait that doubles with every failure, from 100 ms to 5 s.
///
/// A tenth to a half is taken off at random, so that hundreds of routers that lost the same agent
/// at the same moment do not come back in step, and so that an agent that returns is found within
/// 5 s with time to spare.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    /// How many of [`BACKLOG_TRIES`] there were in a row.
    backlog_tries: u8,
    random: u32,
}

impl Backoff {
    /// `seed` should differ between processes.
    pub fn new(seed: u32) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self { base: FIRST, backlog_tries: 0, random: seed.max(1) }
    }

    /// When to try again after a failure at `now`.
    pub fn after_failure(&mut self, now: Instant) -> Instant {
        self.backlog_tries = 0;
        self.doubled(now)
    }

    /// When to try again after the agent's backlog was full until `now`. If it is full for good, the waits grow as
    /// for any other failure.
    pub(super) fn after_full_backlog(&mut self, now: Instant) -> Instant {
        if self.backlog_tries >= BACKLOG_TRIES {
            return self.doubled(now);
        }
        self.base = FIRST;
        self.backlog_tries += 1;
        now + AT_ONCE
    }

    fn doubled(&mut self, now: Instant) -> Instant {
        let base = self.base;
        self.base = (base * 2).min(LONGEST);
        // 500 to 900 thousandths of the base.
        let thousandths = 500 + self.next_random() % 401;
        now + base * thousandths / 1000
    }

    /// Starts again from the shortest wait.
    pub fn reset(&mut self) {
        (self.base, self.backlog_tries) = (FIRST, 0);
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

    /// The milliseconds of the next waits.
    fn waits<const N: usize>(mut next: impl FnMut(Instant) -> Instant) -> [i64; N] {
        [(); N].map(|()| next(Instant::ZERO).total_millis())
    }

    #[test]
    fn full_backlog_is_tried_at_once_and_then_as_any_other_failure() {
        let longest = [1, 1, 1, 1, 90, 180, 360, 720, 1440, 2880, 4500, 4500];
        for seed in 0..1000 {
            let mut backoff = Backoff::new(seed);
            for _ in 0..10 {
                backoff.after_failure(Instant::ZERO);
            }
            let waits: [i64; 12] = waits(|now| backoff.after_full_backlog(now));
            let within = |(wait, longest): (&i64, &i64)| wait <= longest;
            assert!(waits.iter().zip(&longest).all(within), "{waits:?}");
            assert!(waits[11] >= 2500, "it is full for good");
            assert!(backoff.after_failure(Instant::ZERO) > Instant::from_secs(2), "nor is it gone");
        }
    }

    /// The sequence that Marsaglia's "Xorshift RNGs" (2003) begins with.
    #[test]
    fn generator_is_the_one_that_comes_round_last() {
        let mut backoff = Backoff::new(2_463_534_242);
        let numbers = [(); 4].map(|()| backoff.next_random());
        assert_eq!(numbers, [723_471_715, 2_497_366_906, 2_064_144_800, 2_008_045_182]);
    }

    #[test]
    fn neighbouring_seeds_part() {
        let waits: heapless::Vec<_, 16> = (1..=16)
            .map(|seed| {
                let mut backoff = Backoff::new(seed);
                (0..8).map(|_| backoff.after_failure(Instant::ZERO)).max()
            })
            .collect();
        for (i, wait) in waits.iter().enumerate() {
            assert!(!waits[..i].contains(wait));
        }
    }
}
