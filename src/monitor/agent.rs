//! The agent: the notification that is still owed to it. The newest state wins.
//!
//! ```text
//!  post            next_action, over a new connection             a 200, unless a stale request differs
//! ──────► owed ─────────────────────────────────────► in flight ──────────────────────────────────────► told
//!          ▲ ▲                                            │                                              │
//!          │ └──────────── a failure: after a wait ───────┘                                              │
//!          └──────────── post; or the agent was away and it is time to tell it again ────────────────────┘
//! ```
//!
//! There is never more than one request in flight, and a newer state waits for its end: agents handle each
//! connection in a thread of its own (Python's `socketserver.ThreadingMixIn`, eventlet's green threads), and
//! could handle two requests in the wrong order.

use core::mem::{discriminant, replace, take};

use super::backoff::Backoff;
use super::journal::Journal;
use super::{Action, Duration, Instant, LogEvent, State};
use crate::errno::Errno;

/// From connecting to the end of the reply.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// When the newest state is sent again after a delivery that followed an outage, from that delivery on;
/// in ascending order.
///
/// An agent that has just started may answer 200 before it knows its routers, and drop the report.
pub type Renotify = heapless::Vec<Duration, 4>;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// One of each kind, and what that is called.
    pub const KINDS: [(&'static str, Self); 10] = [
        ("no_socket", Self::NoSocket),
        ("refused", Self::Refused),
        ("backlog_full", Self::BacklogFull),
        ("no_permission", Self::NoPermission),
        ("untrusted", Self::Untrusted(0)),
        ("timed_out", Self::TimedOut),
        ("closed_early", Self::ClosedEarly),
        ("malformed", Self::Malformed),
        ("status", Self::Status(0)),
        ("socket", Self::Socket(Errno(0))),
    ];

    /// Whether an agent that does so may be restarting.
    pub(super) fn is_outage(self) -> bool {
        matches!(self, Self::NoSocket | Self::Refused | Self::ClosedEarly | Self::TimedOut)
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The agent answered 200; it may still be sending the rest.
    Delivered,
    /// After that, the agent has closed.
    Closed,
    /// It did not succeed, and the connection is closed.
    Failed(Failure),
}

#[derive(Debug)]
struct Connection {
    deadline: Instant,
    /// The state that was sent, until a 200. After that the agent may finish its reply, as closing first would make
    /// its write fail.
    in_flight: Option<State>,
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
    /// It took a state again at `end`, and has been sent that again so many times.
    Over {
        end: Instant,
        renotified: usize,
    },
}

/// Delivers the newest state until the agent has answered 200 for it.
#[derive(Debug)]
pub(super) struct Outbox {
    newest: Option<State>,
    /// The newest state is owed, and not to be sent before this.
    send_at: Option<Instant>,
    connection: Option<Connection>,
    stale_request: StaleRequest,
    outage: Outage,
    renotify: Renotify,
    backoff: Backoff,
    failures: u32,
}

impl Outbox {
    pub(super) fn new(seed: u32, renotify: Renotify) -> Self {
        Self {
            newest: None,
            send_at: None,
            connection: None,
            stale_request: StaleRequest::None,
            outage: Outage::None,
            renotify,
            backoff: Backoff::new(seed),
            failures: 0,
        }
    }

    /// Takes a state to deliver at once, in place of any older one.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        (self.newest, self.send_at) = (Some(state), Some(now));
        // If the agent returned not long ago, this state is sent as often as the last.
        if let Outage::Over { .. } = self.outage {
            self.outage = Outage::Ongoing;
        }
        if self.stale_request == StaleRequest::Agrees {
            self.stale_request = StaleRequest::Differs;
        }
        self.backoff.reset();
    }

    pub(super) fn handle_outcome(&mut self, outcome: Outcome, journal: &mut Journal, now: Instant) {
        match outcome {
            Outcome::Delivered => {
                let Some((state, failures)) = self.on_delivered(now) else { return };
                journal.counters.notifications += 1;
                journal.log(LogEvent::Notified(state));
                if failures > 0 {
                    journal.log(LogEvent::AgentBack { failures });
                    let failure = Failure::TimedOut;
                    journal.end_failures(&LogEvent::NotNotified { failure, count: 0 });
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
                journal.log_limited(|count| LogEvent::NotNotified { failure, count }, now);
            }
        }
    }

    /// The reply may have come long ago, if the process was stopped or a disk hung; so a connection that should have
    /// ended is read from before it is closed.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        if self.connection.as_ref().is_some_and(|connection| now >= connection.deadline) {
            return Some(Action::HangUp);
        }
        self.begin(now).map(Action::Notify)
    }

    /// Begins an attempt, if one is due, in place of a connection that has yet to end. Returns the state to be sent.
    fn begin(&mut self, now: Instant) -> Option<State> {
        if self.is_in_flight() || self.next_attempt().is_none_or(|at| now < at) {
            return None;
        }
        if let (None, Outage::Over { renotified, .. }) = (self.send_at, &mut self.outage) {
            *renotified += 1;
            self.send_at = Some(now);
        }
        let (deadline, in_flight) = (now + AGENT_TIMEOUT, self.newest);
        self.connection = Some(Connection { deadline, in_flight });
        in_flight
    }

    /// Handles a 200. Returns the state that was delivered, and after how many failed attempts.
    ///
    /// An agent that hung handles all requests that wait at once, each in a thread of its own, and the newest
    /// is not always the last to take effect: Neutron 29 got it wrong in some of a hundred cases. By the time
    /// of this 200 the older threads have begun, so delivering the newest state once more settles it.
    fn on_delivered(&mut self, now: Instant) -> Option<(State, u32)> {
        let state = self.connection.as_mut()?.in_flight.take()?;
        if self.undelivered() == Some(state) {
            let request = replace(&mut self.stale_request, StaleRequest::None);
            if request != StaleRequest::Differs {
                self.send_at = None;
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
        Some((state, take(&mut self.failures)))
    }

    fn on_closed(&mut self) {
        self.connection.take_if(|connection| connection.in_flight.is_none());
    }

    /// Handles a failure, after which the connection is closed. Returns whether an attempt has failed: after a
    /// 200 none has.
    fn on_failed(&mut self, failure: Failure, now: Instant) -> bool {
        let connection = self.connection.take();
        let Some(sent) = connection.and_then(|connection| connection.in_flight) else {
            return false;
        };
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
        if is_newest {
            self.send_at = Some(match failure {
                Failure::BacklogFull => self.backoff.after_full_backlog(now),
                _ => self.backoff.after_failure(now),
            });
        }
        true
    }

    /// Whether nothing has been delivered since an attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether an attempt is under way that may still deliver.
    fn is_in_flight(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.in_flight.is_some())
    }

    /// The state for which the agent has yet to answer 200.
    pub(super) fn undelivered(&self) -> Option<State> {
        self.newest.filter(|_| self.send_at.is_some())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let connection = self.connection.as_ref().map(|connection| connection.deadline);
        let attempt = self.next_attempt().filter(|_| !self.is_in_flight());
        connection.into_iter().chain(attempt).min()
    }

    /// When to send the newest state, be it again to an agent that was away.
    fn next_attempt(&self) -> Option<Instant> {
        self.send_at.or_else(|| match self.outage {
            Outage::Over { end, renotified } => {
                self.renotify.get(renotified).map(|delay| end + *delay)
            }
            Outage::None | Outage::Ongoing => None,
        })
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
            let soon = outbox.deadline() <= Some(Instant::from_millis(10));
            assert_eq!(soon, failure == Failure::BacklogFull, "{failure:?}");
            assert_eq!(deliver(&mut outbox), expected, "{failure:?}");
            outbox.post(Backup, Instant::from_secs(1000));
            assert_eq!(deliver(&mut outbox), [(Backup, 1000)], "{failure:?}: it is there now");
        }
    }
}
