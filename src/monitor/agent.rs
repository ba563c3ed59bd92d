//! The agent: delivery of the newest state, until the agent has answered 200.
//!
//! ```text
//!  post              next_action, over a new connection                             a 200
//! ──────► pending ─────────────────────────────────────► in flight ────────────────────────► delivered
//!          ▲  ▲                                              │                                   │
//!          │  └──────────── a failure: after a wait ─────────┘                                   │
//!          └────────── post; a repetition is due; the agent's socket is another one ─────────────┘
//! ```
//!
//! At most one request is in flight, and a newer state waits for its end. A 200 proves little:
//!
//! - An agent that has just started answers before it knows its routers, and drops the report. One that hung may act on
//!   a request that timed out long ago. So the state is repeated after an outage, for an hour.
//! - Neutron's agent handles each report in a thread of its own. After `primary` it sleeps for 2 s and starts haproxy
//!   before it updates the API. A `backup` that follows meanwhile may be overtaken, or (29) dropped within these 2 s. So a
//!   state that follows another closely is repeated once, also if a predecessor or a failed request brought that other.
//! - It batches reports for some seconds, and loses them if it is killed meanwhile. So [`super::file_check`] checks
//!   that the socket is still the one that answered.

use core::mem::{discriminant, take};

use super::delivery::Delivery;
use super::journal::Journal;
use super::{
    Action, Duration, Failure, Instant, LimitedEvent, LogEvent, Outcome, Predecessor, State,
};

/// The longest time from connecting to the agent to the end of its reply.
pub const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// When to repeat the newest state after an outage: times since the first delivery, in ascending order.
pub type Renotify = heapless::Vec<Duration, 9>;

/// The default, in seconds. An agent may need minutes until it knows its routers.
pub const RENOTIFY: [u64; 9] = [30, 60, 120, 240, 480, 960, 1800, 2700, 3600];

/// How long an agent may need to act on a report: until haproxy runs, on a busy node.
const CROSSING: Duration = Duration::from_secs(30);

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
    /// None once a state was posted.
    predecessor: Option<Predecessor>,
    /// When the newest state was posted.
    since: Instant,
    /// The last state that the agent has read, or may have, and when.
    read: Option<(State, Instant)>,
    /// The state of the last 200, since which the agent was sent no other, and was not replaced.
    acknowledged: Option<State>,
    /// The newest state follows another closely.
    crosses: bool,
    /// When to repeat a state for that.
    crossing: Option<Instant>,
    outage: Outage,
    renotify: Renotify,
}

impl Outbox {
    pub(super) fn new(seed: u32, renotify: Renotify, predecessor: Option<Predecessor>) -> Self {
        Self {
            states: Delivery::new(seed),
            connected_until: None,
            predecessor,
            since: Instant::ZERO,
            read: None,
            acknowledged: None,
            crosses: false,
            crossing: None,
            outage: Outage::None,
            renotify,
        }
    }

    /// Queues a state for delivery at once, in place of any older one.
    pub(super) fn post(&mut self, state: State, now: Instant) {
        // When the predecessor told the agent of its state is unknown.
        if let Some((before, since)) = self.predecessor.take() {
            self.crosses = before != state || since.is_none_or(|since| now < since + CROSSING);
        }
        if self.states.newest != Some(state) {
            self.since = now;
        }
        self.states.post(state, now);
        // Soon after an outage, a new state is repeated as often as the last.
        if let Outage::Over { .. } = self.outage {
            self.outage = Outage::Ongoing;
        }
    }

    /// Returns the newest state, if the agent has not acknowledged it as the last one.
    pub(super) fn unknown(&self) -> Option<State> {
        self.states.newest.filter(|newest| self.acknowledged != Some(*newest))
    }

    /// Delivers the newest state once more, out of turn. A request in flight may have come too early, and a retry is not
    /// hurried.
    pub(super) fn deliver_again(&mut self, now: Instant) {
        self.states.repeat(now);
    }

    /// Delivers the state again, because the socket at the agent's path is not the one that answered. The agent may have
    /// ended before it processed the state.
    pub(super) fn handle_replaced(&mut self, journal: &mut Journal, now: Instant) {
        self.acknowledged = None;
        if self.states.newest.is_some() && self.states.pending().is_none() {
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
                let Some((state, failures)) = self.handle_delivered(now) else { return };
                journal.counters.notifications += 1;
                journal.log(LogEvent::Notified(state));
                if failures > 0 {
                    journal.log(LogEvent::AgentBack { failures });
                    journal.end_failures(|event| matches!(event, LimitedEvent::NotNotified { .. }));
                }
            }
            Outcome::Closed => self.handle_closed(),
            Outcome::Failed(failure) => {
                if !self.handle_failed(failure, now) {
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
        self.begin(now).map(Action::Notify)
    }

    /// Starts an attempt, if one is due. It replaces an open connection. Returns the state to send.
    fn begin(&mut self, now: Instant) -> Option<State> {
        if self.take_repetition(now) {
            self.states.repeat(now);
        }
        let state = self.states.begin(now)?;
        self.acknowledged.take_if(|known| *known != state);
        self.connected_until = Some(now + AGENT_TIMEOUT);
        Some(state)
    }

    /// Returns whether to repeat a delivered state now, and counts that.
    fn take_repetition(&mut self, now: Instant) -> bool {
        if self.repetition_due().is_none_or(|due| now < due) {
            return false;
        }
        self.crossing.take_if(|due| now >= *due);
        if let Some(due) = self.renotification_due().filter(|due| now >= *due)
            && let Outage::Over { end, renotified } = &mut self.outage
        {
            *renotified += 1;
            // After a stop of the process, the next ones keep their distance.
            *end += now - due;
        }
        true
    }

    /// Handles a 200. Returns the delivered state, and the number of failed attempts before.
    fn handle_delivered(&mut self, now: Instant) -> Option<(State, u32)> {
        let (state, failures) = self.states.succeed()?;
        self.handle_read(state, now);
        self.acknowledged = Some(state);
        if take(&mut self.crosses) {
            self.crossing = Some(now + CROSSING);
        }
        // Otherwise a newer state is delivered next.
        if self.states.pending().is_none() {
            self.outage = match self.outage {
                Outage::Ongoing => Outage::Over { end: now, renotified: 0 },
                Outage::Over { renotified, .. } if renotified >= self.renotify.len() => {
                    Outage::None
                }
                outage => outage,
            };
        }
        Some((state, failures))
    }

    /// Handles that the agent has read a state, or may have.
    fn handle_read(&mut self, state: State, now: Instant) {
        if let Some((before, at)) = self.read.replace((state, now))
            && before != state
        {
            (self.crosses, self.crossing) = (self.since < at + CROSSING, None);
        }
    }

    fn handle_closed(&mut self) {
        self.connected_until.take_if(|_| self.states.in_flight.is_none());
    }

    /// Handles a failure, which closes the connection. Returns whether it ended an attempt: not after a 200.
    fn handle_failed(&mut self, failure: Failure, now: Instant) -> bool {
        self.connected_until = None;
        let failed = self.states.fail(|backoff| match failure {
            Failure::BacklogFull => backoff.after_full_backlog(now),
            _ => backoff.after_failure(now),
        });
        let Some(state) = failed else { return false };
        if failure.is_outage() {
            self.outage = Outage::Ongoing;
        }
        if failure.follows_request() {
            self.handle_read(state, now);
        } else if failure.is_outage() {
            // The agent that acknowledged it has ended.
            self.acknowledged = None;
        }
        true
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected_until.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let repetition = self.repetition_due();
        [self.connected_until, self.states.deadline(), repetition].into_iter().flatten().min()
    }

    /// Returns when to repeat a delivered state.
    fn repetition_due(&self) -> Option<Instant> {
        let due = self.renotification_due().into_iter().chain(self.crossing).min();
        due.filter(|_| self.states.pending().is_none())
    }

    /// Returns when to repeat a state after an outage.
    fn renotification_due(&self) -> Option<Instant> {
        let Outage::Over { end, renotified } = self.outage else { return None };
        self.renotify.get(renotified).map(|delay| end + *delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Active, Backup};

    /// Makes every attempt succeed. Returns the state and second of each.
    fn deliver(outbox: &mut Outbox) -> std::vec::Vec<(State, i64)> {
        let mut deliveries = std::vec![];
        while let Some(now) = outbox.deadline() {
            let state = outbox.begin(now).expect("due at its deadline");
            outbox.handle_delivered(now).unwrap();
            outbox.handle_closed();
            deliveries.push((state, now.secs()));
        }
        deliveries
    }

    /// Returns an outbox that never renotifies, and has delivered a state.
    fn delivered(state: State) -> Outbox {
        let mut outbox = Outbox::new(1, Renotify::new(), None);
        outbox.post(state, Instant::ZERO);
        outbox.begin(Instant::ZERO);
        outbox.handle_delivered(Instant::ZERO);
        outbox.handle_closed();
        outbox
    }

    /// It may have read the other state, or be another agent.
    #[test]
    fn agent_that_does_not_answer_does_not_know_the_state() {
        let mut there_and_back = delivered(Active);
        there_and_back.post(Backup, Instant::from_secs(1));
        there_and_back.begin(Instant::from_secs(1));
        there_and_back.post(Active, Instant::from_secs(2));
        there_and_back.handle_failed(Failure::TimedOut, Instant::from_secs(6));
        let mut replaced = delivered(Active);
        replaced.handle_replaced(&mut Journal::default(), Instant::from_secs(1));
        let mut ended = delivered(Active);
        ended.deliver_again(Instant::from_secs(1));
        ended.begin(Instant::from_secs(1));
        ended.handle_failed(Failure::Refused, Instant::from_secs(1));
        for mut outbox in [there_and_back, replaced, ended] {
            assert_eq!(outbox.unknown(), Some(Active));
            deliver(&mut outbox);
            assert_eq!(outbox.unknown(), None);
        }
    }

    /// The agent's threads may have overtaken each other. Another state much later has nothing to cross.
    #[test]
    fn state_that_follows_another_closely_is_repeated_once() {
        for (after, expected) in [(29, &[(Backup, 29), (Backup, 59)][..]), (30, &[(Backup, 30)])] {
            let mut outbox = delivered(Active);
            outbox.post(Backup, Instant::from_secs(after));
            assert_eq!(deliver(&mut outbox), expected, "after {after} s");
            outbox.post(Backup, Instant::from_secs(60));
            assert_eq!(deliver(&mut outbox), [(Backup, 60)], "the same state");
        }
    }

    /// As a backlog is full for long, or the agent answers with an error.
    #[test]
    fn closely_is_when_it_happened_not_when_the_agent_took_it() {
        for failure in [Failure::BacklogFull, Failure::Status(500)] {
            let mut outbox = delivered(Active);
            outbox.post(Backup, Instant::from_secs(3));
            outbox.begin(Instant::from_secs(3));
            outbox.handle_failed(failure, Instant::from_secs(33));
            let first = outbox.deadline().unwrap().secs();
            let expected = [(Backup, first), (Backup, first + 30)];
            assert_eq!(deliver(&mut outbox), expected, "{failure:?}");
        }
    }

    /// The agent may have read a request without an answer.
    #[test]
    fn state_that_follows_an_unanswered_one_is_repeated_once() {
        for (failure, repeats) in [(Failure::TimedOut, true), (Failure::Refused, false)] {
            let mut outbox = delivered(Backup);
            outbox.post(Active, Instant::from_secs(100));
            outbox.begin(Instant::from_secs(100));
            outbox.post(Backup, Instant::from_secs(103));
            outbox.handle_failed(failure, Instant::from_secs(105));
            let expected = [(Backup, 103), (Backup, 133)];
            let expected = &expected[..=usize::from(repeats)];
            assert_eq!(deliver(&mut outbox), expected, "{failure:?}");
        }
    }

    /// A predecessor may have told the agent of another state just before it ended, or of this one too closely after another.
    #[test]
    fn first_state_is_repeated_once_if_it_may_cross_a_predecessors() {
        let recent = Some(Instant::from_secs(80));
        for (predecessor, repeats) in [
            (None, false),
            (Some((Active, Some(Instant::ZERO))), true),
            (Some((Backup, recent)), true),
            (Some((Backup, Some(Instant::from_secs(70)))), false),
            (Some((Backup, None)), true),
            (Some((Backup, Some(Instant::ZERO))), false),
        ] {
            let mut outbox = Outbox::new(1, Renotify::new(), predecessor);
            outbox.post(Backup, Instant::from_secs(100));
            let expected = [(Backup, 100), (Backup, 130)];
            let expected = &expected[..=usize::from(repeats)];
            assert_eq!(deliver(&mut outbox), expected, "{predecessor:?}");
        }
    }

    #[test]
    fn state_is_delivered_again_out_of_turn() {
        let mut outbox = Outbox::new(1, Renotify::new(), None);
        outbox.deliver_again(Instant::ZERO);
        assert_eq!(outbox.deadline(), None, "no state yet");
        outbox.post(Active, Instant::ZERO);
        outbox.begin(Instant::ZERO);
        outbox.handle_failed(Failure::Refused, Instant::ZERO);
        let retry = outbox.deadline();
        outbox.deliver_again(Instant::ZERO);
        assert_eq!(outbox.deadline(), retry, "retries keep their distance");
        outbox.begin(Instant::from_secs(1));
        outbox.deliver_again(Instant::from_secs(1));
        outbox.handle_delivered(Instant::from_secs(2));
        outbox.handle_closed();
        assert_eq!(deliver(&mut outbox), [(Active, 1)], "after the one in flight");
        outbox.deliver_again(Instant::from_secs(3));
        assert_eq!(deliver(&mut outbox), [(Active, 3)]);
    }

    #[test]
    fn state_is_repeated_only_after_an_outage() {
        let again = [0, 30, 60, 120, 240, 480, 960, 1800, 2700, 3600];
        let again = again.map(|second| (Active, second));
        for (failure, expected) in [
            (Failure::NoSocket, &again[..]),
            (Failure::Refused, &again),
            (Failure::ClosedEarly, &again),
            (Failure::TimedOut, &again),
            (Failure::BacklogFull, &again[..1]),
            (Failure::Status(500), &again[..1]),
        ] {
            let renotify = RENOTIFY.map(Duration::from_secs).into_iter().collect();
            let mut outbox = Outbox::new(1, renotify, None);
            outbox.post(Active, Instant::ZERO);
            outbox.begin(Instant::ZERO);
            outbox.handle_failed(failure, Instant::ZERO);
            let soon = outbox.deadline() <= Some(Instant::from_millis(18));
            assert_eq!(soon, failure == Failure::BacklogFull, "{failure:?}");
            assert_eq!(deliver(&mut outbox), expected, "{failure:?}");
            outbox.post(Backup, Instant::from_secs(5000));
            assert_eq!(deliver(&mut outbox), [(Backup, 5000)], "{failure:?}: over");
        }
    }

    #[test]
    fn state_is_repeated_for_another_socket() {
        let renotify = [Duration::from_secs(100)].into_iter().collect();
        let (mut outbox, mut journal) = (Outbox::new(1, renotify, None), Journal::default());
        outbox.handle_replaced(&mut journal, Instant::ZERO);
        outbox.post(Active, Instant::ZERO);
        outbox.handle_replaced(&mut journal, Instant::ZERO);
        assert_eq!(deliver(&mut outbox), [(Active, 0)]);
        outbox.handle_replaced(&mut journal, Instant::from_secs(700));
        let deliveries = deliver(&mut outbox);
        assert_eq!(deliveries, [(Active, 700), (Active, 800)], "as after an outage");
        let line = Some(Action::Log(LogEvent::AgentReplaced));
        assert_eq!((journal.next_action(), journal.next_action()), (line, None), "once");
    }
}
