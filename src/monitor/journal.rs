//! The log and the counters: which events are worth a line (their words are in [`crate::log`]), and of equal failures few.

use core::mem::{Discriminant, discriminant, take};

use heapless::{Deque, Vec};

use super::{
    Action, Cause, CommandResult, Counters, Dump, DumpResult, Duration, Failure, HelperKind,
    HookState, Instant, State, SyncCommand, Trouble,
};
use crate::errno::Errno;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Mac;

/// An event that operators want to read of. `count` is how often it happened since its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "most fields need no more than their names")]
pub enum LogEvent {
    /// The first state known.
    Initial(State),
    /// The state has changed, for this reason.
    Changed(Cause),
    /// The state file holds this now.
    Wrote(State),
    /// The state file could not be written; it is tried again.
    NotWritten { errno: Errno, count: u32 },
    /// The metrics file could not be written; it is tried again.
    MetricsNotWritten { errno: Errno, count: u32 },
    /// The agent answered 200 for this.
    Notified(State),
    /// The agent took a state after so many failed attempts.
    AgentBack { failures: u32 },
    /// An attempt to tell the agent failed; it is tried again.
    NotNotified { failure: Failure, count: u32 },
    /// The watched interface is there, with this index.
    InterfaceFound { ifindex: u32 },
    /// The watched interface is not there.
    InterfaceMissing,
    /// The watched interface is not there, but its name is an alternative one of another.
    AlternativeName { owner: InterfaceName },
    /// Netlink events were lost; everything is asked for again.
    Overrun { count: u32 },
    /// A netlink message could not be read; everything is asked for again.
    MalformedMessage { count: u32 },
    /// A dump failed; it is asked for again.
    DumpFailed { dump: Dump, result: DumpResult, count: u32 },
    /// Somebody other than the kernel sent a netlink message; it was ignored.
    ForeignSender { port: u32, count: u32 },
    /// The VIP's address is here, but not as told.
    Misplaced(Trouble),
    /// The VIP failed duplicate address detection: the kernel does not use it, so it is not here.
    DadFailed { count: u32 },
    /// Another station claims the VIP while it is ours.
    SplitBrain { mac: Mac, ifindex: u32 },
    /// None does any more, or the VIP has gone: how many claims there were, from the first to the last in this time.
    SplitBrainOver { mac: Mac, claims: u32, lasted: Duration },
    /// A probe could not be sent.
    NotProbed { errno: Errno, count: u32 },
    /// A frame that announces an address could not be sent.
    NotAnnounced { interface: InterfaceName, errno: Errno, count: u32 },
    /// Addresses are not announced, because there are too many at once.
    TooManyAddresses { total: u64 },
    /// The addresses of some links are not announced, because there are too many links.
    TooManyLinks { ignored: u64 },
    /// All commands for a state have been run.
    Synced(State),
    /// A command of conntrackd failed; the others are run all the same.
    CommandFailed { command: SyncCommand, end: CommandResult },
    /// The process that runs these programs has gone.
    HelperGone(HelperKind),
    /// conntrackd's configuration is not there yet; it is waited for.
    ConntrackdUnconfigured,
    /// The hook ended with exit code 0 for this state, after so many failed runs.
    HookSucceeded { state: HookState, failures: u32 },
    /// The hook failed for this state; it is run again.
    HookFailed { state: HookState, end: CommandResult, count: u32 },
    /// The network namespace has been deleted.
    NamespaceGone,
    /// SIGHUP: everything is read, written and reported again.
    Reloading,
    /// There was no room for lines.
    LinesLost { count: u32 },
}

/// At most one line of a kind in this time.
const PERIOD: Duration = Duration::from_secs(60);
/// More kinds than there are.
const MAX_KINDS: usize = 32;

/// More lines than one input can bring about. A caller that hands in many before it asks for actions may need more.
const MAX_LINES: usize = 8;

/// Of events that differ in more than what they carry, which.
#[derive(Debug, PartialEq)]
enum Which {
    Only,
    Dump(Discriminant<DumpResult>),
    Agent(Discriminant<Failure>),
    Hook(HookState),
}

fn kind(event: &LogEvent) -> (Discriminant<LogEvent>, Which) {
    let which = match event {
        LogEvent::DumpFailed { result, .. } => Which::Dump(discriminant(result)),
        LogEvent::NotNotified { failure, .. } => Which::Agent(discriminant(failure)),
        LogEvent::HookFailed { state, .. } => Which::Hook(*state),
        _ => Which::Only,
    };
    (discriminant(event), which)
}

#[derive(Debug)]
struct Limit {
    kind: (Discriminant<LogEvent>, Which),
    last: Instant,
    unlogged: u32,
}

/// What has been counted, and what is yet to be logged.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) counters: Counters,
    limits: Vec<Limit, MAX_KINDS>,
    actions: Deque<Action, MAX_LINES>,
    /// Lines for which there was no room. An operator who misses one is to know that there was one.
    lost: u32,
}

impl Journal {
    pub(super) fn log(&mut self, event: LogEvent) {
        self.post(Action::Log(event));
    }

    /// Has this done in its place among the lines.
    pub(super) fn post(&mut self, action: Action) {
        if self.actions.push_back(action).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The same for an event of which there may be many: the first at once, then one a minute that stands for all since.
    pub(super) fn log_limited(&mut self, event: impl Fn(u32) -> LogEvent, now: Instant) {
        let kind = kind(&event(0));
        let Some(limit) = self.limits.iter_mut().find(|limit| limit.kind == kind) else {
            // If there were no room, there would be more lines.
            let _ = self.limits.push(Limit { kind, last: now, unlogged: 0 });
            return self.log(event(1));
        };
        limit.unlogged = limit.unlogged.saturating_add(1);
        if now >= limit.last + PERIOD {
            limit.last = now;
            let count = take(&mut limit.unlogged);
            self.log(event(count));
        }
    }

    /// Whether an event of this kind would have a line now.
    pub(super) fn would_log(&self, event: &LogEvent, now: Instant) -> bool {
        let kind = kind(event);
        self.limits.iter().all(|limit| limit.kind != kind || now >= limit.last + PERIOD)
    }

    /// What failed has succeeded: its next failure is news, whatever it carries.
    pub(super) fn end_failures(&mut self, failure: &LogEvent) {
        self.limits.retain(|limit| limit.kind.0 != discriminant(failure));
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

    fn logs(journal: &mut Journal, event: impl Fn(u32) -> LogEvent) -> bool {
        journal.log_limited(event, Instant::ZERO);
        journal.next_action().is_some()
    }

    #[test]
    fn failure_after_a_success_is_logged_at_once() {
        let mut journal = Journal::default();
        let event = |count| LogEvent::Overrun { count };
        assert!(logs(&mut journal, event) && !logs(&mut journal, event));
        journal.end_failures(&event(0));
        assert!(logs(&mut journal, event));
    }

    #[test]
    fn kinds_of_failures_are_told_apart_but_not_what_they_carry() {
        let mut journal = Journal::default();
        let mut logs = |event| logs(&mut journal, |_| event);
        let agent = |failure| LogEvent::NotNotified { failure, count: 1 };
        let [late, refused] = [Failure::TimedOut, Failure::Refused].map(agent);
        assert!(logs(late) && logs(refused) && !logs(late));
        let [one, other] = [Failure::Socket(Errno(1)), Failure::Socket(Errno(2))].map(agent);
        assert!(logs(one) && !logs(other));
        let dump = |result| LogEvent::DumpFailed { dump: Dump::Links, result, count: 1 };
        assert!(logs(dump(DumpResult::TimedOut)) && logs(dump(DumpResult::Interrupted)));
        let end = CommandResult::TimedOut;
        let hook = |state| LogEvent::HookFailed { state, end, count: 1 };
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
