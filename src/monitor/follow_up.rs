//! The follow-up of a delivery: when to check that the agent's socket is still the one that answered.

use super::{Action, Duration, Instant};

/// Seconds from the delivery to each check.
const CHECKS: [u64; 4] = [10, 30, 120, 600];

#[derive(Debug)]
pub(super) struct FollowUp {
    since: Instant,
    /// The number of checks so far.
    checks: usize,
}

impl FollowUp {
    /// Returns the follow-up of a delivery at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, checks: 0 }
    }

    /// Returns the check that is due, if any.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        let due = self.deadline().filter(|due| now >= *due)?;
        self.checks += 1;
        // A late check delays the rest.
        self.since += now - due;
        Some(Action::CheckAgent)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        CHECKS.get(self.checks).map(|delay| self.since + Duration::from_secs(*delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_check_delays_the_rest() {
        let mut follow_up = FollowUp::new(Instant::ZERO);
        let late = Instant::from_secs(1000);
        assert!(follow_up.next_action(late).is_some() && follow_up.next_action(late).is_none());
        assert_eq!(follow_up.deadline(), Some(late + Duration::from_secs(20)));
    }
}
