//! Which links frames leave by, so that one that is stuck holds up no other.
//!
//! All frames leave through one socket. A frame stays in that socket's send buffer while an interface's queue
//! holds it (`sock_wfree` in `net/core/sock.c`), and once the buffer is full nothing goes out anywhere. The kernel
//! reports how much is in there (`SIOCOUTQ`), but not whose it is. So a link may have only a few frames in it,
//! until the buffer has been seen to hold no more than before them.

use super::{Duration, Instant, Sent};

/// Frames that a link may have in the send buffer. With Linux's default there is room for some 270.
const MOST_QUEUED: u8 = 16;
/// After the first refusal; doubled with each that follows.
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// How often a frame is tried again, within a second in all. Then it has failed, and those after it fail at their
/// first refusal, until one goes out.
const RETRIES: u8 = 10;
/// After at most so many times held back a frame goes out to see whether it leaves.
const PROBE: u16 = 4096;

/// What is known of a link's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Egress {
    /// No frame before this.
    pub(super) not_before: Instant,
    /// What the send buffer held before the first of the frames that may still be in it.
    level: u32,
    /// How many these are.
    queued: u8,
    /// How many there may be.
    allowed: u8,
    /// Refusals since a frame last went out.
    refusals: u8,
    /// Times that frames were held back since they were last seen to leave.
    held_back: u16,
}

impl Egress {
    pub(super) const fn new() -> Self {
        Self {
            not_before: Instant::ZERO,
            level: 0,
            queued: 0,
            allowed: MOST_QUEUED,
            refusals: 0,
            held_back: 0,
        }
    }

    /// How much the send buffer may hold for the next frame to go out; no limit if none.
    pub(super) fn limit(&self) -> Option<u32> {
        (self.queued >= self.allowed).then_some(self.level)
    }

    /// Handles the outcome of a frame. Returns whether it is to be tried again, at `not_before`.
    pub(super) fn on_sent(&mut self, sent: Sent, now: Instant) -> bool {
        match sent {
            Sent::Yes { queued } => {
                self.on_out(queued);
                return false;
            }
            Sent::Failed(_) => return false,
            Sent::HeldBack { queued } => self.on_held_back(queued),
            Sent::Blocked | Sent::QueueFull => {}
        }
        let again = self.refusals < RETRIES;
        if again {
            self.not_before = now + FIRST_WAIT * (1 << self.refusals);
            self.refusals += 1;
        }
        again
    }

    /// Handles a frame that went out when the send buffer held so much.
    fn on_out(&mut self, level: u32) {
        self.refusals = 0;
        if self.queued > 0 && level <= self.level {
            self.queued = 0;
            self.held_back = 0;
            self.allowed = self.allowed.saturating_mul(2).min(MOST_QUEUED);
        }
        if self.queued == 0 {
            self.level = level;
        }
        self.queued += 1;
    }

    /// Handles a frame that was held back. What fills the send buffer may be another link's, and stay. So from
    /// time to time, and ever more seldom, a single frame may go out to see whether it leaves.
    fn on_held_back(&mut self, level: u32) {
        self.held_back = self.held_back.wrapping_add(1);
        if self.held_back.is_power_of_two() || self.held_back.is_multiple_of(PROBE) {
            (self.level, self.queued, self.allowed) = (level, 0, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a frame takes in the send buffer.
    const FRAME: u32 = 768;
    const T0: Instant = Instant::ZERO;

    /// Has a link send a frame when the send buffer holds so much.
    fn send(egress: &mut Egress, level: u32) -> Sent {
        let held_back = egress.limit().is_some_and(|limit| level > limit);
        let sent =
            if held_back { Sent::HeldBack { queued: level } } else { Sent::Yes { queued: level } };
        egress.on_sent(sent, T0);
        sent
    }

    #[test]
    fn link_whose_frames_leave_may_send_whatever_others_leave_there() {
        for others in [0, 1, 100] {
            let mut egress = Egress::new();
            for _ in 0..1000 {
                assert!(matches!(send(&mut egress, others * FRAME), Sent::Yes { .. }));
            }
        }
    }

    #[test]
    fn link_whose_frames_stay_takes_a_small_share() {
        let mut egress = Egress::new();
        let mut there = 0;
        for _ in 0..20_000 {
            if let Sent::Yes { .. } = send(&mut egress, there * FRAME) {
                there += 1;
            }
        }
        assert!((16..40).contains(&there), "{there} frames in the send buffer");
        // Its queue moves again.
        for _ in 0..100 {
            assert!(matches!(send(&mut egress, 0), Sent::Yes { .. }));
        }
    }

    #[test]
    fn room_that_others_make_is_not_all_taken_by_a_link_whose_frames_stay() {
        let mut egress = Egress::new();
        let (mut others, mut there) = (100, 0);
        for _ in 0..20_000 {
            if let Sent::Yes { .. } = send(&mut egress, (others + there) * FRAME) {
                there += 1;
            } else {
                others = 0;
            }
        }
        assert!((16..64).contains(&there), "{there} frames in the send buffer");
    }

    #[test]
    fn link_whose_frames_leave_is_soon_told_from_one_whose_frames_stay() {
        let mut egress = Egress::new();
        let mut held_back = 0;
        // Another leaves one more there each time, as long as it may.
        for n in 0..1000 {
            if let Sent::HeldBack { .. } = send(&mut egress, n.min(20) * FRAME) {
                held_back += 1;
            }
        }
        assert!(held_back < 10, "{held_back} times held back");
    }

    #[test]
    fn refusals_are_waited_out_for_a_second_and_then_fail_at_once() {
        for refusal in [Sent::Blocked, Sent::QueueFull, Sent::HeldBack { queued: FRAME }] {
            let mut egress = Egress::new();
            let mut now = T0;
            while egress.on_sent(refusal, now) {
                assert!(egress.not_before > now);
                now = egress.not_before;
            }
            assert_eq!(now.total_millis(), 1023);
            assert!(!egress.on_sent(refusal, now), "the next frame");
            egress.on_sent(Sent::Yes { queued: 0 }, now);
            assert!(egress.on_sent(refusal, now), "tried again");
        }
    }
}
