//! Failures: when the retry is due at the latest, and which of them have a log line.

use std::collections::BTreeMap;
use std::mem::discriminant;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Answer, Control, Duration, Failure, FoundStateFile, Input, Instant, Keepalived, Outcome,
    Question, State,
};

use super::Simulation;
use super::timing;

/// The longest wait after the first failure, which doubles with each.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The bounds of the longest wait after a full backlog.
const FULL: [Duration; 2] = [Duration::from_millis(18), Duration::from_millis(45)];
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

/// What a question is about, other than a single link.
#[derive(Clone, Copy, Debug)]
enum Subject {
    /// The watched interface, and then its addresses.
    Watched,
    Addresses,
    Links,
}

/// The questions, and when the next one about each subject is due at the latest.
#[derive(Debug, Default)]
pub struct Questions {
    retries: [Retry; 3],
    /// The question in progress, and its subject.
    asked: Option<(Question, Option<Subject>)>,
    last: Option<Question>,
}

impl Questions {
    pub fn asked(&self) -> Option<Question> {
        self.asked.map(|(question, _)| question)
    }

    pub fn begin(&mut self, question: Question) {
        let subject = match question {
            Question::Interface => Some(Subject::Watched),
            Question::Addresses { only: None } => Some(Subject::Addresses),
            Question::Links => Some(Subject::Links),
            Question::Addresses { .. } if self.last == Some(Question::Interface) => {
                Some(Subject::Watched)
            }
            _ => None,
        };
        if let Some(subject) = subject {
            self.retries[subject as usize].begin();
        }
        (self.asked, self.last) = (Some((question, subject)), Some(question));
    }

    /// Notes an input. Returns the end of an answer that begins or ends failures.
    fn note(&mut self, input: &Input, now: Instant) -> Option<Answer> {
        let Input::Answered(answer) = *input else { return None };
        let (_, subject) = self.asked.take()?;
        match (subject, answer) {
            // Gaps in an answer about one link are expected.
            (None, Answer::Complete | Answer::Interrupted) => return None,
            (None, _) => {}
            (Some(Subject::Watched), Answer::Interrupted) => {
                self.retries[Subject::Addresses as usize].be_due(now);
                return None;
            }
            (Some(subject), Answer::Failed(_)) => self.retries[subject as usize].fail(now),
            (Some(subject), _) => {
                let retry = &mut self.retries[subject as usize];
                retry.reset();
                // The kernel has answered, so the wait does not grow.
                if answer == Answer::Interrupted {
                    retry.by.get_or_insert(now + FIRST);
                }
            }
        }
        Some(answer)
    }

    /// Notes that nothing is announced any more.
    pub fn forget_links(&mut self) {
        self.retries[Subject::Links as usize] = Retry::default();
    }

    fn be_due(&mut self, now: Instant) {
        self.retries[Subject::Watched as usize].be_due(now);
    }

    /// Notes a loss, after which all addresses wait for all links.
    fn let_addresses_wait(&mut self, now: Instant) {
        let addresses = &mut self.retries[Subject::Addresses as usize];
        addresses.by = addresses.by.map(|by| by.max(now + FIRST));
    }

    fn note_malformed(&mut self, now: Instant) {
        self.retries[Subject::Watched as usize].fail(now);
    }

    fn are_in_time(
        &self,
        deadline: Option<Instant>,
        now: Option<Instant>,
        is_active: bool,
    ) -> bool {
        let is_in_time = |retry: &Retry| match now {
            Some(now) => retry.is_in_time(deadline, now),
            None => retry.is_scheduled(deadline),
        };
        // Links are listed only to announce. All others wait for the watched interface, and addresses for their links.
        let [watched, all, links] = &self.retries;
        let links = Some(links).filter(|links| is_active && links.by.is_some());
        let others = links.or(Some(all)).filter(|_| watched.by.is_none());
        // An answer waits until the events before it have been read.
        let reads = now.is_some_and(|now| deadline.is_some_and(|deadline| deadline <= now));
        let waits = self.asked.is_some() || reads;
        waits || is_in_time(watched) && others.into_iter().all(is_in_time)
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

    /// Notes a success, after which the next failure of this kind alone has a line at once.
    fn end_one(&mut self, kind: Kind) {
        self.kinds.retain(|of, _| *of != kind);
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

pub fn answer_kind(answer: Answer) -> Kind {
    ("dump", usize::from(answer == Answer::Interrupted))
}

impl Simulation<'_> {
    /// Notes the failures and successes of an input.
    pub(super) fn note_failures(&mut self, input: &Input) {
        let (now, limits, questions) = (self.now, &mut self.limits, &mut self.questions);
        match questions.note(input, now) {
            None => {}
            // Interrupted answers follow complete ones in a storm.
            Some(Answer::Complete) => limits.end_one(answer_kind(Answer::Failed(Errno(0)))),
            Some(answer) => limits.fail(answer_kind(answer), now),
        }
        match *input {
            Input::StateFile(result) => limits.end_or_fail("file", result, now),
            Input::StatePrepared(result) => limits.end_or_fail("spare", result, now),
            Input::FilesChecked(found) if !found.pid_file_lost && !self.disk.fails => {
                self.disk.was_foreign = found.state_file == FoundStateFile::Foreign;
                self.disk.was_changed |= found.state_file == FoundStateFile::Changed;
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
                questions.be_due(now);
                if *input == Input::Overrun {
                    limits.fail(("overrun", 0), now);
                    questions.let_addresses_wait(now);
                }
            }
            Input::MalformedMessage(about) => {
                limits.fail(("malformed", 0), now);
                questions.let_addresses_wait(now);
                let watched = self.monitor.status().ifindex;
                if about.is_none() || watched == about || watched.is_none() {
                    questions.note_malformed(now);
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
        // The newest state may be another than the failed run's, and delayed, and waits for its turn.
        let earliest = now + timing(self.options.delays_hook).delay;
        let earliest = self.hook.turn().map_or(earliest, |turn| turn.max(earliest));
        let hook_by = self.hook.retry.by.map(|by| by.max(earliest));
        let hook = hook_by.is_none_or(|by| now < by && deadline.is_some_and(|at| at <= by));
        let hook = hook || !self.hook.lives || self.leave_by.is_some();
        assert!(hook, "p20_hook_is_retried_in_time: {:?}", self.hook.retry);
        let manager = in_time(&self.manager.retry) || self.manager_wants_nothing();
        assert!(manager, "p4_manager_is_retried_in_time: {:?}", self.manager.retry);
        let emptied = self.emptied_at.filter(|at| *at == now);
        assert!(
            self.questions.are_in_time(deadline, emptied, self.reported == Some(State::Active)),
            "p8_question_is_repeated_in_time: {:?}",
            self.questions
        );
        let lines = &self.limits.expected;
        assert!(lines.is_empty(), "p19_failure_has_its_line: {lines:?}");
    }
}
