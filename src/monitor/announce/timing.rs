//! How often and when addresses are announced.

use core::num::NonZeroU8;

use crate::monitor::Duration;

/// What is usual (`MAX_NEIGHBOR_ADVERTISEMENT` in RFC 4861 section 10).
const ROUNDS: NonZeroU8 = NonZeroU8::MIN.saturating_add(2);

/// How announcements are made. The names are keepalived's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceTiming {
    /// Rounds for each address (`garp_master_repeat`).
    pub repeat: NonZeroU8,
    /// From one round of an address to the next (`garp_master_delay`).
    pub delay: Duration,
    /// From one address to the next (`garp_interval`), so that switches do not throttle them.
    pub interval: Duration,
}

impl Default for AnnounceTiming {
    /// 3 rounds, 2 s apart; 1,000 addresses a second.
    fn default() -> Self {
        Self { repeat: ROUNDS, delay: Duration::from_secs(2), interval: Duration::from_millis(1) }
    }
}
