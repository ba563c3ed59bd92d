//! The notification still owed to the agent: the newest state wins.

use super::backoff::Backoff;
use super::{Duration, Instant, State};
use crate::errno::Errno;

/// From connecting to the end of the reply.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Failure {
    /// There is no socket at the path (`ENOENT`).
    NoSocket,
    /// Nobody listens on the socket (`ECONNREFUSED`).
    Refused,
    /// The agent lets too many wait already (`EAGAIN`).
    BacklogFull,
    /// The socket may not be used (`EACCES`, `EPERM`).
    NoPermission,
    /// Somebody listens on the socket who should not: a process of this user.
    Untrusted(u32),
    /// The reply did not come in time.
    TimedOut,
    /// The agent closed before the end of a status line.
    ClosedEarly,
    /// The reply is no HTTP/1.
    Malformed,
    /// The agent answered with this status instead of 200.
    Status(u16),
    /// Any other error of the socket.
    Socket(Errno),
}

impl Failure {
    /// Whether an agent that does so may be restarting.
    fn is_outage(self) -> bool {
        matches!(self, Self::NoSocket | Self::Refused | Self::ClosedEarly | Self::TimedOut)
    }
}

/// When the newest state is told again after a delivery that followed an outage, from that delivery on;
/// in ascending order.
///
/// An agent that has just started may answer 200 before it knows its routers, and drop the report.
pub type Renotify = heapless::Vec<Duration, 4>;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// The agent answered 200; it may still be sending the rest.
    Delivered,
    /// After that, the agent has closed.
    Closed,
    /// It did not succeed, and the connection is closed.
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    None,
    /// Sent, or being sent; no 200 yet.
    InFlight {
        state: State,
        deadline: Instant,
    },
    /// Delivered. The agent is left to finish its reply, as closing first would make its write fail.
    AwaitingClose {
        deadline: Instant,
    },
}

/// Delivers the newest state until the agent has answered 200 for it.
///
/// There is never more than one attempt in flight, and a newer state waits for the end of it: agents
/// handle each connection in a thread of its own, and could take two requests in the wrong order.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The newest state, as long as it is not delivered.
    pending: Option<State>,
    not_before: Instant,
    attempt: Attempt,
    backoff: Backoff,
    /// Attempts that failed since the last delivery.
    failures: u32,
    /// At the last attempt the agent's backlog was full.
    full: bool,
    /// An agent that hangs may yet take a request that nobody waits for any more.
    unread: bool,
    /// What is unread says something else than the newest state.
    contradicted: bool,
    renotify: Renotify,
    /// The agent was away at some attempt since the last delivery, or its return is being renotified.
    was_away: bool,
    /// The state to tell again, the delivery that the times count from, and how many have passed.
    again: Option<(State, Instant, usize)>,
}

impl Outbox {
    pub(super) fn new(seed: u32, renotify: Renotify) -> Self {
        Self {
            renotify,
            was_away: false,
            again: None,
            pending: None,
            not_before: Instant::ZERO,
            attempt: Attempt::None,
            backoff: Backoff::new(seed),
            failures: 0,
            full: false,
            unread: false,
            contradicted: false,
        }
    }

    /// Takes a state to deliver, in place of any older one, at once.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        self.pending = Some(state);
        // Should the agent have returned not long ago, this state is told as often as the last.
        self.was_away |= self.again.take().is_some();
        self.contradicted |= self.unread;
        self.not_before = now;
        self.backoff.reset();
    }

    /// The state to attempt now. An older connection is to be closed for it.
    pub(super) fn begin(&mut self, now: Instant) -> Option<State> {
        if self.again_at().is_some_and(|at| now >= at)
            && let Some((state, _, passed)) = &mut self.again
        {
            *passed += 1;
            self.pending = Some(*state);
            self.not_before = now;
        }
        if self.is_in_flight() || now < self.not_before {
            return None;
        }
        let state = self.pending?;
        self.attempt = Attempt::InFlight { state, deadline: now + AGENT_TIMEOUT };
        Some(state)
    }

    /// Takes a 200. Tells which state was delivered, and after how many failed attempts.
    ///
    /// An agent that hung takes all that waits at once, each request in a thread of its own, and the
    /// newest is not always the last to be heeded: Neutron 29 got it wrong in some of a hundred cases.
    /// By the time of this 200 the older threads have begun, so saying it once more settles it.
    pub(super) fn delivered(&mut self, now: Instant) -> Option<(State, u32)> {
        let Attempt::InFlight { state, deadline } = self.attempt else { return None };
        self.attempt = Attempt::AwaitingClose { deadline };
        if self.pending == Some(state) {
            self.unread = false;
            if !core::mem::take(&mut self.contradicted) {
                self.pending = None;
                if core::mem::take(&mut self.was_away) {
                    self.again = Some((state, now, 0));
                }
                self.again = self.again.filter(|(_, _, passed)| *passed < self.renotify.len());
            }
        }
        self.backoff.reset();
        Some((state, core::mem::take(&mut self.failures)))
    }

    /// Takes the end of the connection, after a 200 or before it. Tells whether an attempt failed.
    pub(super) fn closed(&mut self, now: Instant) -> bool {
        let Attempt::InFlight { state, .. } = core::mem::replace(&mut self.attempt, Attempt::None)
        else {
            return false;
        };
        self.failures = self.failures.saturating_add(1);
        // A state that came meanwhile does not wait for the failures of its predecessor.
        if self.pending == Some(state) {
            self.not_before = self.backoff.after_failure(now);
        }
        true
    }

    /// Takes a failure, as [`Outbox::closed`].
    pub(super) fn failed(&mut self, failure: Failure, now: Instant) -> bool {
        if let Attempt::InFlight { state, .. } = self.attempt
            && failure == Failure::TimedOut
        {
            self.unread = true;
            self.contradicted |= self.pending != Some(state);
        }
        self.was_away |= failure.is_outage();
        // An agent with a full backlog is there, and will soon have room.
        let full = failure == Failure::BacklogFull;
        if full && !self.full {
            self.backoff.reset();
        }
        self.full = full;
        self.closed(now)
    }

    /// Whether the connection should have come to its end by now.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.attempt_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Whether there is a connection to the agent.
    pub(super) fn is_connected(&self) -> bool {
        self.attempt != Attempt::None
    }

    /// Whether an attempt is under way that may yet deliver.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.attempt, Attempt::InFlight { .. })
    }

    /// The state that the agent does not know of yet.
    pub(super) fn pending(&self) -> Option<State> {
        self.pending
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry = self.pending.filter(|_| !self.is_in_flight()).map(|_| self.not_before);
        [self.attempt_deadline(), retry, self.again_at()].into_iter().flatten().min()
    }

    /// When to tell a delivered state again.
    fn again_at(&self) -> Option<Instant> {
        let (_, delivered, passed) = self.again.filter(|_| self.pending.is_none())?;
        self.renotify.get(passed).map(|delay| delivered + *delay)
    }

    fn attempt_deadline(&self) -> Option<Instant> {
        match self.attempt {
            Attempt::None => None,
            Attempt::InFlight { deadline, .. } | Attempt::AwaitingClose { deadline } => {
                Some(deadline)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Active, Backup};

    const T0: Instant = Instant::ZERO;

    #[test]
    fn delivers_once() {
        let mut outbox = Outbox::new(1, Renotify::new());
        assert_eq!(outbox.begin(T0), None);
        outbox.post(Active, T0);
        assert_eq!(outbox.begin(T0), Some(Active));
        assert_eq!(outbox.begin(T0), None, "one attempt at a time");
        assert_eq!(outbox.delivered(T0), Some((Active, 0)));
        assert!(!outbox.closed(T0), "closing after a 200 is no failure");
        assert_eq!((outbox.begin(T0), outbox.deadline()), (None, None));
    }

    #[test]
    fn retries_with_a_growing_wait() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        let mut now = T0;
        let mut waits = heapless::Vec::<Duration, 8>::new();
        for _ in 0..8 {
            assert_eq!(outbox.begin(now), Some(Active));
            assert!(outbox.closed(now));
            assert_eq!(outbox.begin(now), None, "not before the wait is over");
            let again = outbox.deadline().unwrap();
            waits.push(again - now).unwrap();
            now = again;
        }
        assert!(waits[7] > waits[0] * 10);
        outbox.begin(now);
        assert_eq!(outbox.delivered(T0), Some((Active, 8)));
    }

    #[test]
    fn newer_state_does_not_wait_for_the_backoff() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        outbox.begin(T0);
        outbox.closed(T0);
        outbox.post(Backup, T0);
        assert_eq!(outbox.begin(T0), Some(Backup));
    }

    #[test]
    fn newer_state_follows_the_attempt_in_flight_at_once_however_that_ends() {
        for delivered in [true, false] {
            let mut outbox = Outbox::new(1, Renotify::new());
            outbox.post(Active, T0);
            outbox.begin(T0);
            outbox.post(Backup, T0);
            assert_eq!(outbox.begin(T0), None);
            if delivered {
                outbox.delivered(T0);
            } else {
                outbox.closed(T0);
            }
            assert_eq!(outbox.begin(T0), Some(Backup));
        }
    }

    #[test]
    fn state_that_flipped_back_in_flight_is_not_repeated() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        outbox.begin(T0);
        outbox.post(Backup, T0);
        outbox.post(Active, T0);
        outbox.delivered(T0);
        assert_eq!(outbox.begin(T0), None);
    }

    #[test]
    fn newest_state_is_repeated_after_another_that_may_be_unread() {
        for posted_in_flight in [true, false] {
            let mut outbox = Outbox::new(1, Renotify::new());
            outbox.post(Active, T0);
            outbox.begin(T0);
            if posted_in_flight {
                outbox.post(Backup, T0);
            }
            assert!(outbox.failed(Failure::TimedOut, T0));
            outbox.post(Backup, T0);
            for _ in 0..2 {
                assert_eq!(outbox.begin(T0), Some(Backup));
                assert!(outbox.delivered(T0).is_some());
                assert!(!outbox.closed(T0));
            }
            assert_eq!(outbox.begin(T0), None);
        }
    }

    #[test]
    fn state_that_may_be_unread_itself_is_not_repeated() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        outbox.begin(T0);
        outbox.failed(Failure::TimedOut, T0);
        let again = outbox.deadline().unwrap();
        assert_eq!(outbox.begin(again), Some(Active));
        outbox.delivered(T0);
        assert_eq!(outbox.begin(again), None);
    }

    #[test]
    fn agent_that_is_back_but_busy_is_not_waited_for_as_one_that_is_gone() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        let mut now = T0;
        let mut fail = |failure| {
            outbox.begin(now);
            assert!(outbox.failed(failure, now));
            let wait = outbox.deadline().unwrap() - now;
            now += wait;
            wait
        };
        for _ in 0..10 {
            fail(Failure::Refused);
        }
        assert!(fail(Failure::Refused) > Duration::from_secs(2));
        assert!(fail(Failure::BacklogFull) < Duration::from_millis(100));
        for _ in 0..10 {
            fail(Failure::BacklogFull);
        }
        assert!(fail(Failure::BacklogFull) > Duration::from_secs(2), "busy for good");
    }

    #[test]
    fn silence_is_overdue_before_and_after_the_200() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, T0);
        outbox.begin(T0);
        assert_eq!(outbox.deadline(), Some(T0 + AGENT_TIMEOUT));
        assert!(!outbox.is_overdue(T0));
        assert!(outbox.is_overdue(T0 + AGENT_TIMEOUT));
        outbox.delivered(T0);
        assert!(outbox.is_overdue(T0 + AGENT_TIMEOUT));
        outbox.closed(T0 + AGENT_TIMEOUT);
        assert_eq!(outbox.deadline(), None);
    }

    /// Delivers what is due at the deadlines to come. Returns when that was, in seconds.
    fn told_at(outbox: &mut Outbox) -> heapless::Vec<i64, 8> {
        core::iter::from_fn(|| {
            let now = outbox.deadline()?;
            outbox.begin(now).expect("due at its deadline");
            outbox.delivered(now);
            outbox.closed(now);
            Some(now.secs())
        })
        .collect()
    }

    #[test]
    fn agent_that_was_away_is_told_again_and_no_other() {
        let renotify = Renotify::from_iter([30, 120, 600].map(Duration::from_secs));
        for (failure, times) in [
            (Failure::NoSocket, &[0, 30, 120, 600][..]),
            (Failure::Refused, &[0, 30, 120, 600]),
            (Failure::ClosedEarly, &[0, 30, 120, 600]),
            (Failure::BacklogFull, &[0]),
            (Failure::Status(500), &[0]),
        ] {
            let mut outbox = Outbox::new(1, renotify.clone());
            outbox.post(Active, T0);
            outbox.begin(T0);
            outbox.failed(failure, T0);
            assert_eq!(told_at(&mut outbox), times, "{failure:?}");
            outbox.post(Backup, T0 + Duration::from_secs(1000));
            assert_eq!(told_at(&mut outbox), [1000], "{failure:?}: it is there now");
        }
    }

    #[test]
    fn change_and_outage_begin_the_renotifications_anew() {
        let renotify = Renotify::from_iter([30, 120].map(Duration::from_secs));
        let mut outbox = Outbox::new(1, renotify);
        outbox.post(Active, T0);
        outbox.begin(T0);
        outbox.failed(Failure::Refused, T0);
        let now = outbox.deadline().unwrap();
        outbox.begin(now);
        outbox.delivered(now);
        outbox.closed(now);
        let now = T0 + Duration::from_secs(10);
        outbox.post(Backup, now);
        assert_eq!(outbox.begin(now), Some(Backup));
        outbox.delivered(now);
        outbox.closed(now);
        let now = T0 + Duration::from_secs(40);
        assert_eq!(outbox.deadline(), Some(now));
        assert_eq!(outbox.begin(now), Some(Backup));
        outbox.failed(Failure::Refused, now);
        assert_eq!(told_at(&mut outbox), [40, 70, 160]);
    }
}
