//! Which of many equal failures is worth a line in the log.

use core::mem::{Discriminant, discriminant};

use heapless::Vec;

use super::{Duration, Instant};

/// At most one line in this time.
const PERIOD: Duration = Duration::from_secs(60);

/// Lets the first occurrence through at once, then one a minute that stands for all since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateLimit {
    last: Option<Instant>,
    unlogged: u32,
}

impl RateLimit {
    /// Counts an occurrence. Some: log it, with this many in all since the last line.
    pub(super) fn should_log(&mut self, now: Instant) -> Option<u32> {
        self.unlogged = self.unlogged.saturating_add(1);
        if self.last.is_some_and(|last| now < last + PERIOD) {
            return None;
        }
        self.last = Some(now);
        Some(core::mem::take(&mut self.unlogged))
    }
}

/// A limit for each kind of failure, whatever it carries: for each variant of an enum.
#[derive(Debug)]
pub(super) struct RateLimitByKind<T>(Vec<(Discriminant<T>, RateLimit), MAX_KINDS>);

/// More than any of the enums has. A kind for which there is no room is always worth a line.
const MAX_KINDS: usize = 12;

// Not derived, as that would want the enum to have a default.
impl<T> Default for RateLimitByKind<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> RateLimitByKind<T> {
    /// As [`RateLimit::should_log`], for failures of this kind.
    pub(super) fn should_log(&mut self, failure: &T, now: Instant) -> Option<u32> {
        let kind = discriminant(failure);
        if let Some((_, limit)) = self.0.iter_mut().find(|(known, _)| *known == kind) {
            return limit.should_log(now);
        }
        let mut limit = RateLimit::default();
        let count = limit.should_log(now);
        // Without room for it: see above.
        let _ = self.0.push((kind, limit));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_at_once_then_one_a_minute_with_the_count() {
        let mut repeat = RateLimit::default();
        let mut lines = heapless::Vec::<(i64, u32), 4>::new();
        for second in 0..=120 {
            if let Some(count) = repeat.should_log(Instant::from_secs(second)) {
                lines.push((second, count)).unwrap();
            }
        }
        assert_eq!(lines, [(0, 1), (60, 60), (120, 60)]);
    }

    #[test]
    fn each_kind_has_a_limit_of_its_own_whatever_it_carries() {
        let mut limits = RateLimitByKind::default();
        for (failure, expected) in
            [(Ok(1), Some(1)), (Err(1), Some(1)), (Ok(2), None), (Err(2), None)]
        {
            assert_eq!(limits.should_log(&failure, Instant::ZERO), expected, "{failure:?}");
        }
        assert_eq!(limits.should_log(&Err(3), Instant::from_secs(60)), Some(2));
    }
}
