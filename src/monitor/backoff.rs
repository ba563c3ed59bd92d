//! The wait before the next attempt.

use super::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The first and the longest wait between runs of programs, each of which costs more than an attempt to connect.
pub(super) const OF_PROGRAMS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// The bounds of the mean wait after the backlog was full.
const WHEN_FULL: [Duration; 2] = [Duration::from_millis(12), Duration::from_millis(30)];

/// A wait that doubles with every failure, from 100 ms to 5 s, or for programs from 1 s to 5 minutes.
///
/// A random tenth to half of it is cut off, so that hundreds of routers that lost the same agent do not retry in step.
/// After 5 s at most, a returned agent is found.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    base: Duration,
    /// The first of the latest attempts in a row that found the agent's backlog full.
    full_since: Option<Instant>,
    random: u32,
}

impl Backoff {
    /// Returns a backoff whose `seed` should differ between processes.
    pub(super) fn new(seed: u32) -> Self {
        Self::between_waits([FIRST, LONGEST], seed)
    }

    /// Returns a backoff between rounds of conntrackd's commands.
    pub(super) fn of_programs(seed: u32) -> Self {
        Self::between_waits(OF_PROGRAMS, seed)
    }

    fn between_waits([first, longest]: [Duration; 2], seed: u32) -> Self {
        // From zero, xorshift yields only zeros.
        Self { first, longest, base: first, full_since: None, random: seed.max(1) }
    }

    /// Returns when to try again after a failure at `now`.
    pub(super) fn after_failure(&mut self, now: Instant) -> Instant {
        self.full_since = None;
        let base = self.base;
        self.base = (base * 2).min(self.longest);
        now + self.between(base / 2, base * 9 / 10)
    }

    /// Returns the end of a short wait that does not grow, because nothing has failed.
    pub(super) fn pause(&mut self, now: Instant) -> Instant {
        now + self.between(FIRST / 2, FIRST * 9 / 10)
    }

    /// Returns when to try again after the agent's backlog was full at `now`.
    ///
    /// When hundreds of routers fail over together, most find it full. The kernel wakes no process whose nonblocking
    /// `connect` it has refused (`unix_stream_connect` in `net/unix/af_unix.c`). The mean wait is a third of the time for
    /// which the backlog has been full, from 12 to 30 ms: the longer that time, the more routers wait, and their attempts
    /// take the CPU time that the agent needs. An agent that stays slow gets a 16th, so that no report waits much longer
    /// than in a queue.
    pub(super) fn after_full_backlog(&mut self, now: Instant) -> Instant {
        let full = now - *self.full_since.get_or_insert(now);
        let [least, most] = WHEN_FULL;
        let mean = (full / 3).clamp(least, most).max(full / 16).min(LONGEST * 2 / 3);
        now + self.between(mean / 2, mean * 3 / 2)
    }

    fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + (longest - shortest) * (self.next_random() % 1001) / 1000
    }

    pub(super) fn reset(&mut self) {
        (self.base, self.full_since) = (self.first, None);
    }

    /// Returns the next number of Marsaglia's xorshift32.
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
        let bases = [100, 200, 400, 800, 1600, 3200, 5000, 5000];
        let of_programs = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(|secs| secs * 1000);
        for seed in 0..1000 {
            let mut backoff = Backoff::of_programs(seed);
            for base in of_programs {
                let wait = (backoff.after_failure(Instant::ZERO) - Instant::ZERO).total_millis();
                assert!((base / 2..=base * 9 / 10).contains(&wait), "{wait} ms of {base} ms");
            }
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
    fn full_backlog_is_retried_soon_and_then_less_and_less_often() {
        for seed in 0..1000 {
            let (mut backoff, mut now) = (Backoff::new(seed), Instant::ZERO);
            let mut attempts = 0;
            while now < Instant::from_secs(100) {
                let since = now.total_micros();
                let next = backoff.after_full_backlog(now);
                let mean = (since / 3).clamp(12_000, 30_000).max(since / 16).min(3_333_333);
                let wait = next.total_micros() - since;
                assert!((mean / 2..=mean * 3 / 2).contains(&wait), "{wait} us after {since}");
                now = next;
                attempts += i32::from((1_000_000..2_000_000).contains(&since));
            }
            assert!(attempts < 20, "{attempts} in the second after the first");
            assert!(backoff.after_failure(now) < now + Duration::from_millis(100));
            let anew = backoff.after_full_backlog(now);
            assert!(anew <= now + Duration::from_millis(18), "anew after another failure");
            backoff.after_full_backlog(anew);
            backoff.reset();
            assert!(backoff.after_full_backlog(now) <= now + Duration::from_millis(18), "reset");
        }
    }
}
