//! How long to wait before the next try.

use super::{Duration, Instant};

/// The wait after the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest waits for room in an agent's backlog, before those of any other failure.
///
/// When hundreds of routers fail over together, most find it full. The kernel wakes nobody whose nonblocking
/// `connect` it has refused (`unix_stream_connect` in `net/unix/af_unix.c`), so they spread themselves over the
/// time that an agent takes for some 250 of them. Those that find it full again are few, and come back sooner.
const BACKLOG_WAITS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(40),
    Duration::from_millis(20),
    Duration::from_millis(20),
];

/// A wait that doubles with every failure, from 100 ms to 5 s.
///
/// A tenth to a half is taken off at random, so that hundreds of routers that lost the same agent
/// at the same moment do not come back in step, and so that an agent that returns is found within
/// 5 s with time to spare.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    /// How many of [`BACKLOG_WAITS`] have passed in a row.
    backlog_waits: usize,
    random: u32,
}

impl Backoff {
    /// `seed` should differ between processes.
    pub fn new(seed: u32) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self { base: FIRST, backlog_waits: 0, random: seed.max(1) }
    }

    /// When to try again after a failure at `now`.
    pub fn after_failure(&mut self, now: Instant) -> Instant {
        self.backlog_waits = 0;
        self.doubled(now)
    }

    /// When to try again after the agent's backlog was full at `now`: as it is there, it will soon have room.
    /// If it is full for good, the waits grow as for any other failure.
    pub(super) fn after_full_backlog(&mut self, now: Instant) -> Instant {
        let Some(longest) = BACKLOG_WAITS.get(self.backlog_waits) else { return self.doubled(now) };
        self.base = FIRST;
        self.backlog_waits += 1;
        now + *longest * (1 + self.next_random() % 1000) / 1000
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
        (self.base, self.backlog_waits) = (FIRST, 0);
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
    fn full_backlog_is_waited_out_closely_and_then_as_any_other_failure() {
        let longest = [100, 40, 20, 20, 90, 180, 360, 720, 1440, 2880, 4500, 4500];
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

    #[test]
    fn no_wait_is_as_short_as_none() {
        for seed in 0..1000 {
            let mut backoff = Backoff::new(seed);
            for _ in BACKLOG_WAITS {
                assert!(backoff.after_full_backlog(Instant::ZERO) > Instant::ZERO);
            }
        }
    }

    #[test]
    fn routers_with_a_full_backlog_spread_over_the_whole_wait() {
        let first = |seed| Backoff::new(seed).after_full_backlog(Instant::ZERO).total_millis();
        for tenth in 0..10 {
            let there =
                (0..1000_u32).filter(|pid| first(pid.rotate_left(16)) / 10 == tenth).count();
            assert!((60..140).contains(&there), "{there} of 1,000 in the tenth {tenth}");
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
