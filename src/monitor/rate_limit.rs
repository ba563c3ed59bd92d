//! Which of many equal failures is worth a line in the log.

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
}
