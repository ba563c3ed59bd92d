//! The log and the counters: which events are logged, and how often. [`crate::log`] has the texts.

use core::mem::{discriminant, take};

use heapless::{Deque, Vec};

use super::{
    Action, Answer, Cause, CommandResult, Counters, Duration, Ending, Failure, HelperKind,
    HookState, Instant, Question, Source, State, SyncCommand,
};
use crate::errno::Errno;
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Mac;

/// An event for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "most fields need no more than their names")]
pub enum LogEvent {
    /// An event that may be frequent, and the number of times since the last line about its kind.
    Limited(LimitedEvent, u32),
    /// The first state known.
    Initial(State),
    /// The state has changed, for this reason.
    Changed(Cause),
    /// The state file holds this now.
    Wrote(State),
    /// The agent answered 200 for this state.
    Notified(State),
    /// The agent answered 200 after this number of failed attempts.
    AgentBack { failures: u32 },
    /// The socket at the agent's path is not the one that answered: the state is sent again.
    AgentReplaced,
    /// The pid file is another daemon's, or has been removed: exiting.
    Superseded,
    /// The watched interface exists, with this index.
    InterfaceFound { ifindex: u32 },
    /// The watched interface does not exist.
    InterfaceMissing,
    /// A link-local VIP is on this interface in place of the watched one, which may be right.
    Elsewhere { interface: InterfaceName, cidr: Cidr },
    /// Another station claims the VIP while this router is active.
    SplitBrain { mac: Mac, ifindex: u32 },
    /// The split brain is over. `lasted` is the time from the first claim to the last sign, `silent` the time since.
    SplitBrainOver { mac: Mac, claims: u32, lasted: Duration, silent: Duration, ending: Ending },
    /// A round of commands has ended. `done`: none has failed. Otherwise the configuration is missing.
    Synced { state: State, done: bool },
    /// A command of conntrackd failed; the next ones still run.
    CommandFailed { command: SyncCommand, end: CommandResult },
    /// conntrackd was restarted since its last command, so it has to be filled again.
    ConntrackdRestarted,
    /// The helper process that runs these programs is gone.
    HelperGone(HelperKind),
    /// The hook ended with exit code 0 for this state, after this number of failed runs.
    HookSucceeded { state: HookState, failures: u32 },
    /// A source of inputs failed for good: exiting.
    SourceFailed(Source, Errno),
    /// The network namespace has been deleted.
    NamespaceGone,
    /// SIGHUP: everything is listed, written and reported again.
    Reloading,
    /// This number of lines was lost, because their queue was full.
    LinesLost { count: u32 },
}

/// An event that may be frequent: each kind has at most one line a minute, until a success ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "most fields need no more than their names")]
pub enum LimitedEvent {
    /// The state file could not be written; the write is retried.
    NotWritten { errno: Errno },
    /// The spare state file could not be prepared; that is retried.
    NotPrepared { errno: Errno },
    /// Another process has removed the state file since the last check, or has changed its word or rights.
    StateFileChanged,
    /// Another process has replaced the state file since the last check.
    StateFileShared,
    /// The metrics file could not be written; the write is retried.
    MetricsNotWritten { errno: Errno },
    /// An attempt to notify the agent failed; it is retried.
    NotNotified { failure: Failure },
    /// The watched name is an alternative name of this interface.
    AlternativeName { owner: InterfaceName },
    /// The watched interface is down or has no carrier.
    InterfaceDown(Cause),
    /// Netlink events were lost; everything is requested again.
    Overrun,
    /// A netlink message could not be read; if it may be about the VIP, everything is requested again.
    MalformedMessage { ifindex: Option<u32> },
    /// The kernel did not answer a question in full; it is asked again.
    QuestionFailed { question: Question, answer: Answer },
    /// A process sent a netlink message; it was ignored.
    ForeignSender { port: u32 },
    /// The VIP's address is on this interface, with this prefix length, but not where it is expected.
    Misplaced { interface: InterfaceName, cidr: Cidr },
    /// The VIP failed duplicate address detection, so the kernel does not use it.
    DadFailed,
    /// A station has claimed the VIP, and has answered no question about it.
    ClaimUnconfirmed { mac: Mac },
    /// Whether the network namespace was deleted could not be seen; that is tried again.
    NamespaceUnseen { errno: Errno },
    /// keepalived has not run for ten seconds.
    KeepalivedGone,
    /// Claims cannot be received; that is tried again.
    NotListening { errno: Errno },
    /// A probe could not be sent.
    NotProbed { errno: Errno },
    /// This host has nothing from which a probe would harm nobody.
    NoSender,
    /// A frame that announces an address could not be sent.
    NotAnnounced { interface: InterfaceName, errno: Errno },
    /// Addresses are not announced, because too many were added at once.
    TooManyAddresses { total: u64 },
    /// The addresses of these links are not announced, because the table of links is full.
    TooManyLinks { ignored: u64 },
    /// conntrackd's configuration does not exist yet; the commands wait for it.
    ConntrackdUnconfigured,
    /// The hook failed for this state, with this time limit; it is run again.
    HookFailed { state: HookState, end: CommandResult, limit: Duration },
}

/// The least time between two lines of one kind.
const PERIOD: Duration = Duration::from_secs(60);
/// Room for more kinds of limited events than fail at a time.
const MAX_KINDS: usize = 48;

/// More lines than one input can cause. A caller that passes in several before it polls may lose lines.
const MAX_LINES: usize = 8;

/// Returns whether two events share a limit.
fn is_same_kind(one: &LimitedEvent, other: &LimitedEvent) -> bool {
    use LimitedEvent::{HookFailed, NotNotified, QuestionFailed};
    let is_same = match (one, other) {
        (QuestionFailed { answer: a, .. }, QuestionFailed { answer: b, .. }) => {
            discriminant(a) == discriminant(b)
        }
        (NotNotified { failure: a }, NotNotified { failure: b }) => {
            discriminant(a) == discriminant(b)
        }
        (HookFailed { state: a, .. }, HookFailed { state: b, .. }) => a == b,
        _ => true,
    };
    is_same && discriminant(one) == discriminant(other)
}

#[derive(Debug)]
struct Limit {
    event: LimitedEvent,
    last: Instant,
    unlogged: u32,
}

/// The counters, and the pending lines.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) counters: Counters,
    limits: Vec<Limit, MAX_KINDS>,
    actions: Deque<Action, MAX_LINES>,
    /// The number of lines lost because the queue was full, until that has been logged.
    lost: u32,
}

impl Journal {
    pub(super) fn log(&mut self, event: LogEvent) {
        self.post(Action::Log(event));
    }

    /// Queues an action, in order with the lines.
    pub(super) fn post(&mut self, action: Action) {
        if self.actions.push_back(action).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Logs an event that may be frequent: the first at once, then one line a minute with the count since.
    pub(super) fn log_limited(&mut self, event: LimitedEvent, now: Instant) {
        let same = self.limits.iter_mut().find(|limit| is_same_kind(&limit.event, &event));
        let Some(limit) = same else {
            if self.limits.is_full() {
                // The oldest may have a line too early.
                self.limits.remove(0);
            }
            let _ = self.limits.push(Limit { event, last: now, unlogged: 0 });
            return self.log(LogEvent::Limited(event, 1));
        };
        limit.unlogged = limit.unlogged.saturating_add(1);
        if now >= limit.last + PERIOD {
            limit.last = now;
            let count = take(&mut limit.unlogged);
            self.log(LogEvent::Limited(event, count));
        }
    }

    /// Returns when the next event of this kind would be logged. None: at any time.
    pub(super) fn next_line(&self, event: &LimitedEvent) -> Option<Instant> {
        let same = self.limits.iter().find(|limit| is_same_kind(&limit.event, event));
        same.map(|limit| limit.last + PERIOD)
    }

    /// Returns whether an event of this kind would be logged now.
    pub(super) fn would_log(&self, event: &LimitedEvent, now: Instant) -> bool {
        self.next_line(event).is_none_or(|at| now >= at)
    }

    /// Handles a success after these failures: the next failure is logged at once.
    pub(super) fn end_failures(&mut self, is_over: impl Fn(&LimitedEvent) -> bool) {
        self.limits.retain(|limit| !is_over(&limit.event));
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front().or_else(|| {
            let count = take(&mut self.lost);
            (count > 0).then_some(Action::Log(LogEvent::LinesLost { count }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(journal: &mut Journal, event: LimitedEvent) -> bool {
        journal.log_limited(event, Instant::ZERO);
        journal.next_action().is_some()
    }

    #[test]
    fn failure_after_a_success_is_logged_at_once() {
        let mut journal = Journal::default();
        let event = LimitedEvent::Overrun;
        assert!(logs(&mut journal, event) && !logs(&mut journal, event));
        journal.end_failures(|event| matches!(event, LimitedEvent::Overrun));
        assert!(logs(&mut journal, event));
    }

    #[test]
    fn kinds_of_failures_differ_but_not_by_what_they_carry() {
        let mut journal = Journal::default();
        let mut logs = |event| logs(&mut journal, event);
        let agent = |failure| LimitedEvent::NotNotified { failure };
        let [late, refused] = [Failure::TimedOut, Failure::Refused].map(agent);
        assert!(logs(late) && logs(refused) && !logs(late));
        let [one, other] = [Failure::Socket(Errno(1)), Failure::Socket(Errno(2))].map(agent);
        assert!(logs(one) && !logs(other));
        let links = |answer| LimitedEvent::QuestionFailed { question: Question::Links, answer };
        assert!(logs(links(Answer::Failed(Errno(1)))) && logs(links(Answer::Interrupted)));
        let end = CommandResult::TimedOut;
        let hook = |state| LimitedEvent::HookFailed { state, end, limit: PERIOD };
        assert!(logs(hook(HookState::Master)) && logs(hook(HookState::Backup)));
    }

    #[test]
    fn lines_without_room_are_counted() {
        let mut journal = Journal::default();
        (0..=MAX_LINES).for_each(|_| journal.log(LogEvent::InterfaceMissing));
        let last = core::iter::from_fn(|| journal.next_action()).last();
        assert_eq!(last, Some(Action::Log(LogEvent::LinesLost { count: 1 })));
    }
}
