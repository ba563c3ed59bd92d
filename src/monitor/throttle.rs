//! How many frames are read in a second.

use super::{Duration, Instant};

/// Frames that are read in a [`PERIOD`], and so how often a flood wakes the daemon. A master that announces itself
/// sends fewer.
const MAX_FRAMES: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);

/// After so many frames reading pauses until the second is over. The kernel drops what has no room in
/// the socket's queue.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// When the present second is over.
    over: Option<Instant>,
    /// Frames in it.
    frames: u32,
    paused: bool,
}

impl Throttle {
    /// Counts a frame. Returns whether to pause.
    pub(super) fn on_frame(&mut self, now: Instant) -> bool {
        if self.over.is_none_or(|over| now >= over) {
            (self.over, self.frames) = (Some(now + PERIOD), 0);
        }
        self.frames = self.frames.saturating_add(1);
        let pause = self.frames == MAX_FRAMES;
        self.paused |= pause;
        pause
    }

    /// Ends the pause if it is time. Returns whether it has ended.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let over = self.deadline().is_some_and(|over| now >= over);
        self.paused &= !over;
        over
    }

    /// When to go on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.over.filter(|_| self.paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_until_the_second_is_over() {
        let at = Instant::from_millis;
        let mut throttle = Throttle::default();
        for n in 1..16 {
            assert!(!throttle.on_frame(at(5000 + n)));
        }
        assert_eq!(throttle.deadline(), None);
        assert!(throttle.on_frame(at(5900)));
        assert_eq!(throttle.deadline(), Some(at(6001)));
        assert!(!throttle.is_over(at(6000)));
        assert!(throttle.is_over(at(6001)));
        assert_eq!(throttle.deadline(), None);
        assert!(!throttle.is_over(at(6001)), "once");
    }
}
