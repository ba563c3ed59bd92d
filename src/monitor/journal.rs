//! What people are told: figures, and lines in the log, of which equal failures have few.

use core::mem::{Discriminant, discriminant, take};

use heapless::{Deque, Vec};

use super::{Action, Counters, DumpResult, Duration, Failure, HookState, Instant, LogEvent};

/// At most one line of a kind in this time.
const PERIOD: Duration = Duration::from_secs(60);
/// More kinds than there are.
const MAX_KINDS: usize = 32;

/// More lines than one input can bring about: they are written before the next is handled.
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

/// Lets the first event of a kind through at once, then one a minute that stands for all since.
#[derive(Debug, Default)]
struct RateLimits(Vec<Limit, MAX_KINDS>);

impl RateLimits {
    /// Counts an event. Returns what to log, if anything: the event with the number of all since the last line.
    fn limit(&mut self, event: impl Fn(u32) -> LogEvent, now: Instant) -> Option<LogEvent> {
        let kind = kind(&event(0));
        let Some(limit) = self.0.iter_mut().find(|limit| limit.kind == kind) else {
            // If there were no room, there would be more lines.
            let _ = self.0.push(Limit { kind, last: now, unlogged: 0 });
            return Some(event(1));
        };
        limit.unlogged = limit.unlogged.saturating_add(1);
        if now < limit.last + PERIOD {
            return None;
        }
        limit.last = now;
        Some(event(take(&mut limit.unlogged)))
    }
}

/// What has been counted, and what is yet to be logged.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) counters: Counters,
    limits: RateLimits,
    lines: Deque<LogEvent, MAX_LINES>,
    reopen_log: bool,
    log_status: bool,
}

impl Journal {
    /// Has a line written.
    pub(super) fn log(&mut self, event: LogEvent) {
        let logged = self.lines.push_back(event);
        debug_assert!(logged.is_ok(), "one input brings about fewer lines");
    }

    /// The same for an event of which there may be many: with their number, at most once a minute.
    pub(super) fn log_limited(&mut self, event: impl Fn(u32) -> LogEvent, now: Instant) {
        if let Some(event) = self.limits.limit(event, now) {
            self.log(event);
        }
    }

    /// Has the log opened again, before the next line.
    pub(super) fn reopen_log(&mut self) {
        self.reopen_log = true;
    }

    /// Has the status logged.
    pub(super) fn log_status(&mut self) {
        self.log_status = true;
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        if take(&mut self.reopen_log) {
            return Some(Action::ReopenLog);
        }
        if take(&mut self.log_status) {
            return Some(Action::LogStatus);
        }
        self.lines.pop_front().map(Action::Log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn first_at_once_then_one_a_minute_with_the_count() {
        let mut limits = RateLimits::default();
        let mut lines = heapless::Vec::<(i64, LogEvent), 4>::new();
        for second in 0..=120 {
            let event =
                limits.limit(|count| LogEvent::Overrun { count }, Instant::from_secs(second));
            lines.extend(event.map(|event| (second, event)));
        }
        let line = |second, count| (second, LogEvent::Overrun { count });
        assert_eq!(lines, [line(0, 1), line(60, 60), line(120, 60)]);
    }

    #[test]
    fn kinds_of_failures_are_told_apart_but_not_what_they_carry() {
        let mut limits = RateLimits::default();
        let mut logs = |failure| {
            let event = |count| LogEvent::NotNotified { failure, count };
            limits.limit(event, Instant::ZERO).is_some()
        };
        assert!(logs(Failure::TimedOut) && logs(Failure::Refused) && !logs(Failure::TimedOut));
        assert!(logs(Failure::Socket(Errno(1))) && !logs(Failure::Socket(Errno(2))));
    }
}
