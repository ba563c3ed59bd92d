//! Failures: when the retry is due at the latest, and which of them have a log line.

use std::collections::BTreeMap;
use std::mem::discriminant;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Control, Dump, DumpResult, Duration, Failure, FoundStateFile, Input, Instant, Keepalived,
    Outcome,
};

use super::Simulation;
use super::kernel::Meaning;
use super::timing;

/// The longest wait after the first failure, which doubles with each.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The bounds of the longest wait after a full backlog.
const FULL: [Duration; 2] = [Duration::from_millis(18), Duration::from_millis(45)];
/// The timeout of a dump.
const TIMEOUT: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// When a retry is due.
#[derive(Debug, Default)]
pub struct Retry {
    /// The number of failures since the last success.
    failures: u32,
    full_since: Option<Instant>,
    by: Option<Instant>,
}

impl Retry {
    pub fn is_pending(&self) -> bool {
        self.by.is_some()
    }

    /// Notes a failure. A retry that is already due stays due.
    pub fn fail(&mut self, now: Instant) {
        self.fail_between([FIRST, LONGEST], now);
    }

    /// Notes a failure. Returns the longest wait that follows it.
    pub fn fail_between(&mut self, [first, longest]: [Duration; 2], now: Instant) -> Duration {
        let wait = (first * (1 << self.failures.min(9))).min(longest);
        self.by.get_or_insert(now + wait);
        (self.failures, self.full_since) = (self.failures + 1, None);
        wait
    }

    pub fn fail_as_full(&mut self, now: Instant) {
        let full = now - *self.full_since.get_or_insert(now);
        let longest = (full / 2).clamp(FULL[0], FULL[1]).max(full * 3 / 32).min(LONGEST);
        self.be_due(now + longest);
    }

    pub fn be_due(&mut self, by: Instant) {
        self.by = Some(self.by.map_or(by, |earlier| earlier.min(by)));
    }

    pub fn begin(&mut self) {
        self.by = None;
    }

    /// Forgets the failures, after a success or for a new value.
    pub fn reset(&mut self) {
        (self.failures, self.full_since) = (0, None);
    }

    pub fn is_in_time(&self, deadline: Option<Instant>, now: Instant) -> bool {
        self.by.is_none_or(|by| now < by) && self.is_scheduled(deadline)
    }

    fn is_scheduled(&self, deadline: Option<Instant>) -> bool {
        self.by.is_none_or(|by| deadline.is_some_and(|deadline| deadline <= by))
    }
}

/// Dumps in the order of [`Dump`].
#[derive(Debug, Default)]
pub struct Dumps {
    retries: [Retry; 3],
    /// The running dump, the time of its request, and its result so far.
    running: Option<(usize, Instant, DumpResult)>,
    /// It lists only one interface, so its success ends no failures of others.
    is_restricted: bool,
}

impl Dumps {
    pub fn begin(&mut self, dump: Dump, only: Option<u32>, now: Instant) {
        self.is_restricted = only.is_some();
        self.retries[dump as usize].begin();
        self.running = Some((dump as usize, now, DumpResult::Complete));
    }

    /// Notes an input. Returns the result of the dump that it ends, if any.
    fn note(&mut self, input: &Input, meaning: Meaning, now: Instant) -> Option<DumpResult> {
        let (dump, since, so_far) = self.running.as_mut()?;
        let result = match (input, meaning) {
            (Input::RequestFailed(errno), _) => DumpResult::Failed(*errno),
            (Input::QueueEmpty, _) if now >= *since + TIMEOUT => DumpResult::TimedOut,
            (Input::Netlink(message), Meaning::Listed | Meaning::Ended(_)) => {
                if message.interrupted {
                    *so_far = DumpResult::Interrupted;
                }
                let Meaning::Ended(result) = meaning else { return None };
                if let DumpResult::Failed(_) = result { result } else { *so_far }
            }
            _ => return None,
        };
        let retry = &mut self.retries[*dump];
        match result {
            DumpResult::Complete => retry.reset(),
            // The kernel has answered, so the wait does not grow.
            DumpResult::Interrupted => {
                retry.reset();
                retry.by.get_or_insert(now + FIRST);
            }
            _ => retry.fail(now),
        }
        self.running = None;
        Some(result)
    }

    /// Notes a malformed message, which makes the running dump fail and these dumps due.
    fn note_malformed(&mut self, dumps: usize, now: Instant) {
        self.retries[..dumps].iter_mut().for_each(|retry| retry.fail(now));
        if let Some((_, _, so_far)) = self.running.as_mut().filter(|_| dumps > 1) {
            *so_far = DumpResult::Malformed;
        }
    }

    fn are_in_time(&self, deadline: Option<Instant>, now: Option<Instant>) -> bool {
        let is_in_time = |retry: &Retry| match now {
            Some(now) => retry.is_in_time(deadline, now),
            None => retry.is_scheduled(deadline),
        };
        self.running.is_some() || self.retries.iter().all(is_in_time)
    }
}

/// A kind of failures: the name of its line, and a number.
type Kind = (&'static str, usize);

/// The limits of log lines.
#[derive(Debug, Default)]
pub struct Limits {
    /// The time of the last line of each kind, and the number of failures since.
    kinds: BTreeMap<Kind, (Instant, u32)>,
    /// The link on which the last frame failed, until one goes out there.
    failing_link: Option<u32>,
    expected: Vec<(Kind, u32)>,
}

impl Limits {
    pub fn fail(&mut self, kind: Kind, now: Instant) {
        let (last, unlogged) = self.kinds.entry(kind).or_insert((now - MINUTE, 0));
        *unlogged += 1;
        if now >= *last + MINUTE {
            self.expected.push((kind, std::mem::take(unlogged)));
            *last = now;
        }
    }

    /// Notes a success, after which the next failure has a line at once.
    pub fn end(&mut self, name: &str) {
        self.kinds.retain(|(of, _), _| *of != name);
    }

    fn end_or_fail(&mut self, name: &'static str, result: Result<(), Errno>, now: Instant) {
        if result.is_ok() { self.end(name) } else { self.fail((name, 0), now) }
    }

    pub fn read(&mut self, kind: Kind, count: u32) {
        let at = self.expected.iter().position(|line| *line == (kind, count));
        let at = at.unwrap_or_else(|| panic!("p19_one_line_a_minute: {kind:?} {count}"));
        self.expected.remove(at);
    }

    /// Reads a line that is limited to one a minute, with or without successes.
    pub fn read_other(&mut self, kind: Kind, now: Instant) {
        self.fail(kind, now);
        self.expected.pop_if(|(last, _)| *last == kind).expect("p19_one_line_a_minute");
    }
}

pub fn failure_kind(failure: Failure) -> Kind {
    let is_same = |(_, kind): &(_, Failure)| discriminant(kind) == discriminant(&failure);
    ("agent", Failure::KINDS.iter().position(is_same).expect("one of them"))
}

pub fn dump_kind(result: DumpResult) -> Kind {
    use DumpResult::{Complete, Failed, Interrupted, Malformed, TimedOut};
    let kinds = [Complete, Interrupted, Malformed, Failed(Errno(0)), TimedOut];
    let is_same = |kind: &DumpResult| discriminant(kind) == discriminant(&result);
    ("dump", kinds.iter().position(is_same).expect("one of them"))
}

impl Simulation<'_> {
    /// Notes the failures and successes of an input.
    pub(super) fn note_failures(&mut self, input: &Input) {
        let (now, limits, dumps) = (self.now, &mut self.limits, &mut self.dumps);
        if let Some(result) = dumps.note(input, self.kernel.meaning, now) {
            match result {
                DumpResult::Complete if dumps.is_restricted => {}
                DumpResult::Complete => limits.end("dump"),
                _ => limits.fail(dump_kind(result), now),
            }
        }
        match *input {
            Input::StateFile(result) => limits.end_or_fail("file", result, now),
            Input::StatePrepared(result) => limits.end_or_fail("spare", result, now),
            Input::FilesChecked(found) if !found.pid_file_lost && !self.disk.fails => {
                self.disk.was_foreign = found.state_file == FoundStateFile::Foreign;
                if self.disk.was_foreign {
                    limits.fail(("shared file", 0), now);
                } else {
                    limits.end("shared file");
                }
            }
            Input::MetricsFile(result) => limits.end_or_fail("metrics", result, now),
            Input::KeepalivedChecked(found) if found != Keepalived::Gone => {
                limits.end("keepalived");
            }
            Input::KeepalivedChecked(_) if self.keepalived.is_trouble() => {
                limits.fail(("keepalived", 0), now);
            }
            Input::Probed(result) => limits.end_or_fail("probe", result, now),
            Input::Sent(address, Err(_)) => {
                limits.failing_link = Some(address.ifindex);
                limits.fail(("announcement", 0), now);
            }
            Input::Sent(address, Ok(()))
                if limits.failing_link.take_if(|link| *link == address.ifindex).is_some() =>
            {
                limits.end("announcement");
            }
            Input::Agent(Outcome::Delivered { .. }) => limits.end("agent"),
            Input::Agent(Outcome::Failed(failure))
                if std::mem::take(&mut self.agent.has_failed) =>
            {
                limits.fail(failure_kind(failure), now);
            }
            Input::ForeignSender(_) => limits.fail(("foreign", 0), now),
            Input::Overrun | Input::Control(Control::Reload) => {
                dumps.retries[..2].iter_mut().for_each(|retry| retry.be_due(now));
                if *input == Input::Overrun {
                    limits.fail(("overrun", 0), now);
                }
            }
            Input::MalformedMessage(about) => {
                limits.fail(("malformed", 0), now);
                let watched = self.monitor.status().ifindex;
                match about.filter(|about| watched != Some(*about)) {
                    None => dumps.note_malformed(2 + usize::from(self.options.announces), now),
                    Some(_) if watched.is_none() => dumps.note_malformed(1, now),
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }

    /// Asserts that each failure is retried in time, and has its line.
    pub(super) fn no_retry_is_late(&self) {
        let (deadline, now) = (self.monitor.deadline(), self.now);
        let in_time = |retry: &Retry| retry.is_in_time(deadline, now);
        assert!(in_time(&self.disk.retry), "p3_state_file_is_retried_in_time");
        assert!(in_time(&self.disk.spare_retry), "p3_spare_is_retried_in_time");
        assert!(in_time(&self.agent.retry), "p6_agent_is_retried_in_time: {:?}", self.agent.retry);
        // The newest state may be another than the failed run's, and delayed.
        let delay = timing(self.options.delays_hook).delay;
        let hook_by = self.hook.retry.by.map(|by| by.max(now + delay));
        let hook = hook_by.is_none_or(|by| now < by && deadline.is_some_and(|at| at <= by));
        let hook = hook || !self.hook.lives || self.leave_by.is_some();
        assert!(hook, "p20_hook_is_retried_in_time: {:?}", self.hook.retry);
        let manager = in_time(&self.manager.retry) || self.manager_wants_nothing();
        assert!(manager, "p4_manager_is_retried_in_time: {:?}", self.manager.retry);
        let emptied = self.emptied_at.filter(|at| *at == now);
        assert!(
            self.dumps.are_in_time(deadline, emptied),
            "p8_dump_is_retried_in_time: {:?}",
            self.dumps
        );
        let lines = &self.limits.expected;
        assert!(lines.is_empty(), "p19_failure_has_its_line: {lines:?}");
    }
}
