//! The agent: delivery of the newest state, until the agent has answered 200.
//!
//! ```text
//!  post              next_action, over a new connection           a 200, unless a stale request differs
//! ──────► pending ─────────────────────────────────────► in flight ────────────────────────► delivered
//!          ▲  ▲                                              │                                   │
//!          │  └──────────── a failure: after a wait ─────────┘                                   │
//!          └── post; a repetition after an outage is due; the agent's socket is another one ─────┘
//! ```
//!
//! At most one request is in flight, and a newer state waits for its end. Agents handle each connection in a thread of
//! its own (Python's `socketserver.ThreadingMixIn`, eventlet's green threads), and might reorder two requests.
//!
//! A 200 proves little. An agent that has just started answers before it knows its routers, and drops the report. So
//! the daemon repeats the state after an outage. Neutron's agent batches reports for some seconds, and loses them if it
//! is killed meanwhile. So after a delivery the daemon checks that the socket is still the one that answered.

use core::mem::{discriminant, replace};

use super::delivery::Delivery;
use super::follow_up::FollowUp;
use super::journal::Journal;
use super::{Action, Duration, Failure, Instant, LimitedEvent, LogEvent, Outcome, State};

/// The longest time from connecting to the agent to the end of its reply.
pub const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// When to repeat the newest state after an outage: times since the first delivery, in ascending order.
pub type Renotify = heapless::Vec<Duration, 4>;

/// A request that timed out, which a hanging agent may still handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleRequest {
    None,
    /// It has the newest state.
    Agrees,
    /// It has another state, so the newest state has to be delivered twice.
    Differs,
}

/// Whether the agent may have answered 200 before it knew its routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    None,
    /// An attempt since the last delivery failed as during a restart.
    Ongoing,
    /// The first delivery afterwards was at `end`, with this number of repetitions since.
    Over {
        end: Instant,
        renotified: usize,
    },
}

/// Delivers the newest state until the agent has answered 200 for it.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) states: Delivery<State>,
    /// The deadline of the connection. After a 200 the agent may finish its reply: if the daemon closed the connection,
    /// the agent's write would fail.
    connected_until: Option<Instant>,
    stale_request: StaleRequest,
    outage: Outage,
    renotify: Renotify,
    follow_up: Option<FollowUp>,
}

impl Outbox {
    pub(super) fn new(seed: u32, renotify: Renotify) -> Self {
        Self {
            states: Delivery::new(seed),
            connected_until: None,
            stale_request: StaleRequest::None,
            outage: Outage::None,
            renotify,
            follow_up: None,
        }
    }

    /// Queues a state for delivery at once, in place of any older one.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        self.states.post(state, now);
        self.follow_up = None;
        // Soon after an outage, a new state is repeated as often as the last.
        if let Outage::Over { .. } = self.outage {
            self.outage = Outage::Ongoing;
        }
        if self.stale_request == StaleRequest::Agrees {
            self.stale_request = StaleRequest::Differs;
        }
    }

    /// Delivers the newest state once more, out of turn. A request in flight may have come too early, and a retry is not
    /// hurried.
    pub(super) fn deliver_again(&mut self, now: Instant) {
        self.states.repeat(now);
    }

    /// Delivers the state again, because the socket at the agent's path is not the one that answered. The agent may have
    /// ended before it processed the state.
    pub(super) fn handle_replaced(&mut self, journal: &mut Journal, now: Instant) {
        if self.follow_up.take().is_some() {
            journal.log(LogEvent::AgentReplaced);
            self.outage = Outage::Ongoing;
            self.deliver_again(now);
        }
    }

    pub(super) fn handle_outcome(&mut self, outcome: Outcome, journal: &mut Journal, now: Instant) {
        match outcome {
            Outcome::Delivered { by_another } => {
                if by_another {
                    self.outage = Outage::Ongoing;
                }
                let Some((state, failures)) = self.on_delivered(now) else { return };
                journal.counters.notifications += 1;
                journal.log(LogEvent::Notified(state));
                if failures > 0 {
                    journal.log(LogEvent::AgentBack { failures });
                    journal.end_failures(|event| matches!(event, LimitedEvent::NotNotified { .. }));
                }
            }
            Outcome::Closed => self.on_closed(),
            Outcome::Failed(failure) => {
                if !self.on_failed(failure, now) {
                    return;
                }
                let counts = journal.counters.notification_failures.iter_mut();
                for (count, (_, kind)) in counts.zip(Failure::KINDS) {
                    *count += u64::from(discriminant(&kind) == discriminant(&failure));
                }
                journal.log_limited(LimitedEvent::NotNotified { failure }, now);
            }
        }
    }

    /// Returns the next action. After a stop of the process or a hanging disk, a reply that arrived in time may still be
    /// unread, so `HangUp` reads it first.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.connected_until.is_some_and(|deadline| now >= deadline) {
            return Some(Action::HangUp);
        }
        self.begin(now).map(Action::Notify).or_else(|| self.follow_up.as_mut()?.next_action(now))
    }

    /// Starts an attempt, if one is due. It replaces an open connection. Returns the state to send.
    fn begin(&mut self, now: Instant) -> Option<State> {
        if let Some(due) = self.repetition_due().filter(|due| now >= *due)
            && let Outage::Over { end, renotified } = &mut self.outage
        {
            *renotified += 1;
            // After a stop of the process, the next ones keep their distance.
            *end += now - due;
            self.states.repeat(now);
        }
        let state = self.states.begin(now)?;
        (self.connected_until, self.follow_up) = (Some(now + AGENT_TIMEOUT), None);
        Some(state)
    }

    /// Handles a 200. Returns the delivered state, and the number of failed attempts before.
    ///
    /// After a hang, an agent handles all waiting requests at once, each in its own thread, and the newest is not
    /// always the last to take effect: Neutron 29 reordered a few of a hundred. At the time of this 200 the older
    /// threads have started, so delivering the newest state once more settles the order.
    fn on_delivered(&mut self, now: Instant) -> Option<(State, u32)> {
        let delivered = self.states.succeed()?;
        let stale = replace(&mut self.stale_request, StaleRequest::None);
        if self.states.pending().is_some() {
            // The next delivery settles the order.
        } else if stale == StaleRequest::Differs {
            self.states.repeat(now);
        } else {
            self.follow_up = Some(FollowUp::new(now));
            self.outage = match self.outage {
                Outage::Ongoing => Outage::Over { end: now, renotified: 0 },
                Outage::Over { renotified, .. } if renotified >= self.renotify.len() => {
                    Outage::None
                }
                outage => outage,
            };
        }
        Some(delivered)
    }

    fn on_closed(&mut self) {
        self.connected_until.take_if(|_| self.states.in_flight.is_none());
    }

    /// Handles a failure, which closes the connection. Returns whether it ended an attempt: not after a 200.
    fn on_failed(&mut self, failure: Failure, now: Instant) -> bool {
        self.connected_until = None;
        let failed = self.states.fail(|backoff| match failure {
            Failure::BacklogFull => backoff.after_full_backlog(now),
            _ => backoff.after_failure(now),
        });
        if failed.is_none() {
            return false;
        }
        if failure == Failure::TimedOut {
            let agrees =
                failed == self.states.newest && self.stale_request != StaleRequest::Differs;
            self.stale_request = if agrees { StaleRequest::Agrees } else { StaleRequest::Differs };
        }
        if failure.is_outage() {
            self.outage = Outage::Ongoing;
        }
        true
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected_until.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let repetition = self.repetition_due();
        let check = self.follow_up.as_ref().and_then(FollowUp::deadline);
        [self.connected_until, self.states.deadline(), repetition, check]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns when to repeat a delivered state after an outage.
    fn repetition_due(&self) -> Option<Instant> {
        match self.outage {
            Outage::Over { end, renotified } if self.states.pending().is_none() => {
                self.renotify.get(renotified).map(|delay| end + *delay)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Active, Backup};

    /// Makes every attempt succeed. Returns the state and second of each attempt, and the second of each check.
    fn deliver(outbox: &mut Outbox) -> (std::vec::Vec<(State, i64)>, std::vec::Vec<i64>) {
        let (mut deliveries, mut checks) = (std::vec![], std::vec![]);
        while let Some(now) = outbox.deadline() {
            match outbox.next_action(now) {
                Some(Action::Notify(state)) => {
                    outbox.on_delivered(now).unwrap();
                    outbox.on_closed();
                    deliveries.push((state, now.secs()));
                }
                action => {
                    assert_eq!(action, Some(Action::CheckAgent), "due at its deadline");
                    checks.push(now.secs());
                }
            }
        }
        (deliveries, checks)
    }

    #[test]
    fn stale_request_that_differs_counts_more_than_one_that_agrees() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.post(Active, Instant::ZERO);
        outbox.begin(Instant::ZERO);
        outbox.post(Backup, Instant::ZERO);
        for _ in 0..2 {
            assert!(outbox.on_failed(Failure::TimedOut, Instant::ZERO));
            let now = outbox.deadline().unwrap();
            assert_eq!(outbox.begin(now), Some(Backup));
        }
        outbox.on_delivered(Instant::ZERO);
        outbox.on_closed();
        assert_eq!(deliver(&mut outbox).0, [(Backup, 0)], "once more");
    }

    #[test]
    fn state_is_delivered_again_out_of_turn() {
        let mut outbox = Outbox::new(1, Renotify::new());
        outbox.deliver_again(Instant::ZERO);
        assert_eq!(outbox.deadline(), None, "no state yet");
        outbox.post(Active, Instant::ZERO);
        outbox.begin(Instant::ZERO);
        outbox.on_failed(Failure::Refused, Instant::ZERO);
        let retry = outbox.deadline();
        outbox.deliver_again(Instant::ZERO);
        assert_eq!(outbox.deadline(), retry, "retries keep their distance");
        outbox.begin(Instant::from_secs(1));
        outbox.deliver_again(Instant::from_secs(1));
        outbox.on_delivered(Instant::from_secs(2));
        outbox.on_closed();
        assert_eq!(deliver(&mut outbox).0, [(Active, 1)], "after the one in flight");
        outbox.deliver_again(Instant::from_secs(3));
        assert_eq!(deliver(&mut outbox).0, [(Active, 3)]);
    }

    #[test]
    fn state_is_repeated_only_after_an_outage() {
        let again = [0, 30, 120, 600].map(|second| (Active, second));
        for (failure, expected) in [
            (Failure::NoSocket, &again[..]),
            (Failure::Refused, &again),
            (Failure::ClosedEarly, &again),
            (Failure::TimedOut, &again),
            (Failure::BacklogFull, &again[..1]),
            (Failure::Status(500), &again[..1]),
        ] {
            let renotify = [30, 120, 600].map(Duration::from_secs).into_iter().collect();
            let mut outbox = Outbox::new(1, renotify);
            outbox.post(Active, Instant::ZERO);
            outbox.begin(Instant::ZERO);
            outbox.on_failed(failure, Instant::ZERO);
            let soon = outbox.deadline() <= Some(Instant::from_millis(18));
            assert_eq!(soon, failure == Failure::BacklogFull, "{failure:?}");
            assert_eq!(deliver(&mut outbox).0, expected, "{failure:?}");
            outbox.post(Backup, Instant::from_secs(1000));
            assert_eq!(deliver(&mut outbox).0, [(Backup, 1000)], "{failure:?}: over");
        }
    }

    #[test]
    fn socket_is_checked_after_each_delivery_and_the_state_repeated_if_it_is_another() {
        let renotify = [Duration::from_secs(100)].into_iter().collect();
        let (mut outbox, mut journal) = (Outbox::new(1, renotify), Journal::default());
        outbox.handle_replaced(&mut journal, Instant::ZERO);
        outbox.post(Active, Instant::ZERO);
        let (deliveries, checks) = deliver(&mut outbox);
        assert_eq!((deliveries.len(), checks), (1, std::vec![10, 30, 120, 600]));
        outbox.handle_replaced(&mut journal, Instant::from_secs(700));
        let (deliveries, checks) = deliver(&mut outbox);
        assert_eq!(deliveries, [(Active, 700), (Active, 800)], "as after an outage");
        assert_eq!(checks, [710, 730, 810, 830, 920, 1400]);
        let line = Some(Action::Log(LogEvent::AgentReplaced));
        assert_eq!((journal.next_action(), journal.next_action()), (line, None), "once");
    }
}
