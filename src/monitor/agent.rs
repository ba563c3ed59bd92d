//! The agent: the notification that is still owed to it. The newest state wins.
//!
//! ```text
//!           what the agent knows                              the connection
//!
//!              ┌──────────┐                                   ┌────────────┐
//!              │ Nothing  │                                   │   Closed   │◀──────────┐
//!              └────┬─────┘                                   └─────┬──────┘           │
//!                   │ post                begin, if Owed and        │   ▲              │
//!                   ▼                     not before its time       │   │ on_failed:   │
//!              ┌──────────┐                                         ▼   │ Owed waits   │
//!         ┌───▶│   Owed   │◀─────┐                            ┌────────────┐           │
//!         └────┴────┬─────┘      │ post; begin, if the        │  InFlight  │           │
//!   on_delivered,   │            │ agent was away and         └─────┬──────┘           │
//!   if a stale      │            │ the time has come                │ on_delivered     │
//!   request differs │ on_        │                                  ▼                  │
//!                   │ delivered  │                           ┌───────────────┐         │
//!                   ▼            │                           │ AwaitingClose │─────────┘
//!              ┌──────────┐      │                           └───────────────┘  on_closed,
//!              │   Told   │──────┘                                              on_failed
//!              └──────────┘
//! ```
//!
//! There is never more than one request in flight, and a newer state waits for its end: agents handle each
//! connection in a thread of its own (Python's `socketserver.ThreadingMixIn`, eventlet's green threads), and
//! could handle two requests in the wrong order.

use super::backoff::Backoff;
use super::journal::Journal;
use super::{Action, Duration, Failure, Instant, LogEvent, Outcome, State};

/// From connecting to the end of the reply.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// When the newest state is told again after a delivery that followed an outage, from that delivery on;
/// in ascending order.
///
/// An agent that has just started may answer 200 before it knows its routers, and drop the report.
pub type Renotify = heapless::Vec<Duration, 4>;

/// What the agent knows of the newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// Nothing, and there is no state yet.
    Nothing,
    /// It has yet to answer 200 for this state.
    Owed { state: State, not_before: Instant },
    /// It has answered 200 for this state.
    Told(State),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Closed,
    /// The request is sent, or being sent; no 200 yet.
    InFlight {
        state: State,
        deadline: Instant,
    },
    /// Delivered. The agent may finish its reply, as closing first would make its write fail.
    AwaitingClose {
        deadline: Instant,
    },
}

/// A request that timed out, and that an agent that hangs may still handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleRequest {
    None,
    /// It says what the newest state is.
    Agrees,
    /// It says something else, so the newest state has to be delivered twice.
    Differs,
}

/// Whether the agent may have answered 200 before it knew its routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    None,
    /// It was away at some attempt since the last delivery.
    Ongoing,
    /// It took a state again at `end`, and has been told that again so many times.
    Over {
        end: Instant,
        renotified: usize,
    },
}

/// Delivers the newest state until the agent has answered 200 for it.
#[derive(Debug)]
pub(super) struct Outbox {
    knowledge: Knowledge,
    connection: Connection,
    stale_request: StaleRequest,
    outage: Outage,
    renotify: Renotify,
    backoff: Backoff,
    /// Attempts that failed since the last delivery.
    failures: u32,
}

impl Outbox {
    pub(super) fn new(seed: u32, renotify: Renotify) -> Self {
        Self {
            knowledge: Knowledge::Nothing,
            connection: Connection::Closed,
            stale_request: StaleRequest::None,
            outage: Outage::None,
            renotify,
            backoff: Backoff::new(seed),
            failures: 0,
        }
    }

    /// Takes a state to deliver at once, in place of any older one.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        self.knowledge = Knowledge::Owed { state, not_before: now };
        // If the agent returned not long ago, this state is told as often as the last.
        if let Outage::Over { .. } = self.outage {
            self.outage = Outage::Ongoing;
        }
        if self.stale_request == StaleRequest::Agrees {
            self.stale_request = StaleRequest::Differs;
        }
        self.backoff.reset();
    }

    /// Handles what has become of an attempt.
    pub(super) fn handle_outcome(&mut self, outcome: Outcome, journal: &mut Journal, now: Instant) {
        match outcome {
            Outcome::Delivered => {
                let Some((state, failures)) = self.on_delivered(now) else { return };
                journal.counters.notifications += 1;
                journal.log(LogEvent::Notified(state));
                if failures > 0 {
                    journal.log(LogEvent::AgentBack { failures });
                }
            }
            Outcome::Closed => self.on_closed(),
            Outcome::Failed(failure) => {
                if !self.on_failed(failure, now) {
                    return;
                }
                if let Some(n) = journal.counters.notification_failures.get_mut(failure.kind()) {
                    *n += 1;
                }
                journal.log_limited(|count| LogEvent::NotNotified { failure, count }, now);
            }
        }
    }

    /// The reply may have come long ago, if the process was stopped or a disk hung; so a connection that should have
    /// ended is read from before it is closed.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.is_overdue(now) {
            return Some(Action::HangUp);
        }
        self.begin(now).map(Action::Notify)
    }

    /// Begins an attempt, if one is due. Returns the state to be sent over a new connection; one that awaits
    /// its close is to be closed before.
    fn begin(&mut self, now: Instant) -> Option<State> {
        if self.renotification().is_some_and(|at| now >= at)
            && let Knowledge::Told(state) = self.knowledge
            && let Outage::Over { renotified, .. } = &mut self.outage
        {
            *renotified += 1;
            self.knowledge = Knowledge::Owed { state, not_before: now };
        }
        match self.knowledge {
            Knowledge::Owed { state, not_before } if now >= not_before && !self.is_in_flight() => {
                self.connection = Connection::InFlight { state, deadline: now + AGENT_TIMEOUT };
                Some(state)
            }
            _ => None,
        }
    }

    /// Handles a 200. Returns the state that was delivered, and after how many failed attempts.
    ///
    /// An agent that hung handles all requests that wait at once, each in a thread of its own, and the newest
    /// is not always the last to take effect: Neutron 29 got it wrong in some of a hundred cases. By the time
    /// of this 200 the older threads have begun, so delivering the newest state once more settles it.
    fn on_delivered(&mut self, now: Instant) -> Option<(State, u32)> {
        let Connection::InFlight { state, deadline } = self.connection else { return None };
        self.connection = Connection::AwaitingClose { deadline };
        if self.undelivered() == Some(state) {
            let stale = core::mem::replace(&mut self.stale_request, StaleRequest::None);
            if stale != StaleRequest::Differs {
                self.knowledge = Knowledge::Told(state);
                self.outage = match self.outage {
                    Outage::Ongoing => Outage::Over { end: now, renotified: 0 },
                    Outage::Over { renotified, .. } if renotified >= self.renotify.len() => {
                        Outage::None
                    }
                    outage => outage,
                };
            }
        }
        self.backoff.reset();
        Some((state, core::mem::take(&mut self.failures)))
    }

    /// Handles the end of a connection after a 200.
    fn on_closed(&mut self) {
        if let Connection::AwaitingClose { .. } = self.connection {
            self.connection = Connection::Closed;
        }
    }

    /// Handles a failure, after which the connection is closed. Returns whether an attempt has failed: after a
    /// 200 none has.
    fn on_failed(&mut self, failure: Failure, now: Instant) -> bool {
        let connection = core::mem::replace(&mut self.connection, Connection::Closed);
        let Connection::InFlight { state: sent, .. } = connection else { return false };
        self.failures = self.failures.saturating_add(1);
        let is_newest = self.undelivered() == Some(sent);
        if failure == Failure::TimedOut {
            let agrees = is_newest && self.stale_request != StaleRequest::Differs;
            self.stale_request = if agrees { StaleRequest::Agrees } else { StaleRequest::Differs };
        }
        if failure.is_outage() {
            self.outage = Outage::Ongoing;
        }
        // A newer state does not wait for the failures of its predecessor.
        if let Knowledge::Owed { not_before, .. } = &mut self.knowledge
            && is_newest
        {
            *not_before = match failure {
                Failure::BacklogFull => self.backoff.after_full_backlog(now),
                _ => self.backoff.after_failure(now),
            };
        }
        true
    }

    /// Whether the connection should have been closed by now.
    fn is_overdue(&self, now: Instant) -> bool {
        self.connection_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Whether there is a connection to the agent.
    pub(super) fn is_connected(&self) -> bool {
        self.connection != Connection::Closed
    }

    /// Whether an attempt is under way that may still deliver.
    fn is_in_flight(&self) -> bool {
        matches!(self.connection, Connection::InFlight { .. })
    }

    /// The state for which the agent has yet to answer 200.
    pub(super) fn undelivered(&self) -> Option<State> {
        match self.knowledge {
            Knowledge::Owed { state, .. } => Some(state),
            Knowledge::Nothing | Knowledge::Told(_) => None,
        }
    }

    /// When the connection should have ended, or the next attempt is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let attempt = match self.knowledge {
            Knowledge::Owed { not_before, .. } if !self.is_in_flight() => Some(not_before),
            _ => self.renotification(),
        };
        [self.connection_deadline(), attempt].into_iter().flatten().min()
    }

    /// When to deliver a state again to an agent that was away.
    fn renotification(&self) -> Option<Instant> {
        let (Knowledge::Told(_), Outage::Over { end, renotified }) = (self.knowledge, self.outage)
        else {
            return None;
        };
        self.renotify.get(renotified).map(|delay| end + *delay)
    }

    fn connection_deadline(&self) -> Option<Instant> {
        match self.connection {
            Connection::Closed => None,
            Connection::InFlight { deadline, .. } | Connection::AwaitingClose { deadline } => {
                Some(deadline)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Active, Backup};

    /// Has every attempt to come succeed. Returns the state and the second of each.
    fn deliver(outbox: &mut Outbox) -> heapless::Vec<(State, i64), 8> {
        core::iter::from_fn(|| {
            let now = outbox.deadline()?;
            let state = outbox.begin(now).expect("due at its deadline");
            assert_eq!(outbox.on_delivered(now).map(|(state, _)| state), Some(state));
            outbox.on_closed();
            Some((state, now.secs()))
        })
        .collect()
    }

    #[test]
    fn stale_request_that_differs_is_not_forgotten_for_one_that_agrees() {
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
        assert_eq!(deliver(&mut outbox), [(Backup, 0)], "once more");
    }

    #[test]
    fn agent_that_was_away_is_told_again_and_no_other() {
        let again = [(Active, 0), (Active, 30), (Active, 120), (Active, 600)];
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
            assert_eq!(deliver(&mut outbox), expected, "{failure:?}");
            outbox.post(Backup, Instant::from_secs(1000));
            assert_eq!(deliver(&mut outbox), [(Backup, 1000)], "{failure:?}: it is there now");
        }
    }
}
