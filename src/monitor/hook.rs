//! The hook: one run after another, for the newest state.
//!
//! A state that begins and ends during a run, or within the delay, is skipped. A failed run may have done part of its work.
//! So after it the hook is run even if the state is again that of the last successful run.

use core::mem::take;

use heapless::HistoryBuf;

use super::backoff::OF_PROGRAMS;
use super::delivery::Delivery;
use super::journal::Journal;
use super::{
    Action, CommandResult, Duration, HookState, Instant, LimitedEvent, LogEvent, Predecessor, State,
};
use crate::wire::helper::{HOOK_PERIOD, HOOK_RUNS};

/// The wait after the first failure, which doubles with each: a script that ends with a false test fails at every run,
/// and each run may send mail.
const FIRST_RETRY: Duration = OF_PROGRAMS[0];
const LONGEST_RETRY: Duration = OF_PROGRAMS[1];
/// The most to which the time limit grows after killed runs.
const LONGEST_LIMIT: Duration = Duration::from_secs(600);
/// The time in which the helper starts [`HOOK_RUNS`] at most, of which the core leaves one for the exit.
const PERIOD: Duration = Duration::from_secs(HOOK_PERIOD);

/// When the hook is run, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct HookTiming {
    /// How long a run may take. It is twice as long after a run that was killed, up to ten minutes.
    pub limit: Duration,
    /// How long a state other than FAULT must have lasted before its run.
    pub delay: Duration,
}

/// Runs the hook until it has succeeded for the newest state.
#[derive(Debug)]
pub(super) struct HookSchedule {
    pub(super) runs: Delivery<HookState>,
    timing: HookTiming,
    /// None once a state was posted.
    predecessor: Option<Predecessor>,
    /// Since when the newest state has lasted.
    since: Instant,
    /// The state of the last run, unless that has failed. This state needs no other run.
    ran_for: Option<HookState>,
    /// The state of a run that was killed, and the time limit of the next.
    longer: Option<(HookState, Duration)>,
    /// A run is forced, once the state is known: see [`Self::run_again`].
    again: bool,
    /// The next run is a forced one: it repeats programs that have succeeded.
    anew: bool,
    /// When the last runs began. The helper would hold back a further run until its state is old.
    begun: HistoryBuf<Instant, { HOOK_RUNS - 1 }>,
}

impl HookSchedule {
    pub(super) fn new(seed: u32, timing: HookTiming, predecessor: Option<Predecessor>) -> Self {
        Self {
            runs: Delivery::new(seed),
            timing,
            predecessor,
            since: Instant::ZERO,
            ran_for: None,
            longer: None,
            again: false,
            anew: false,
            begun: HistoryBuf::new(),
        }
    }

    /// Forces a run for the current state, or for the next one if none is known.
    pub(super) fn run_again(&mut self) {
        self.again = true;
    }

    /// Queues the current state, if that is known, in place of one whose run has not started.
    pub(super) fn post(&mut self, state: Option<HookState>, now: Instant) {
        let Some(state) = state else { return };
        let again = take(&mut self.again);
        let is_new = self.runs.newest != Some(state);
        if !is_new && !again {
            return;
        }
        if is_new {
            self.since = self.take_begin(state, now);
            self.runs.failures = 0;
        }
        if again {
            (self.ran_for, self.anew) = (None, true);
        }
        if self.ran_for == Some(state) {
            self.runs.post_delivered(state);
        } else {
            self.runs.post(state, now.max(self.not_before(state)));
        }
    }

    /// Returns when the newest state will have lasted long enough for its run.
    fn not_before(&self, state: HookState) -> Instant {
        let is_delayed = state != HookState::Fault;
        self.since + if is_delayed { self.timing.delay } else { Duration::ZERO }
    }

    /// Returns when a state began that is new `now`: the first may be the predecessor's.
    fn take_begin(&mut self, state: HookState, now: Instant) -> Instant {
        let word = if state == HookState::Master { State::Active } else { State::Backup };
        // Only the first state can be the predecessor's.
        let same = self.predecessor.take().filter(|(last, _)| *last == word);
        same.and_then(|(_, since)| since).map_or(now, |since| since.min(now))
    }

    /// Handles the request to exit: a pending run is due at once.
    pub(super) fn handle_exit(&mut self, now: Instant) {
        self.timing.delay = Duration::ZERO;
        self.begun.clear();
        self.runs.hurry(now);
    }

    /// Returns whether an exit waits: a run that is not for MASTER is under way, or follows the present one.
    pub(super) fn delays_exit(&self) -> bool {
        let master = Some(HookState::Master);
        let (running, newest) = (self.runs.in_flight, self.runs.newest);
        running.is_some() && (running != master || newest != master)
    }

    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.deadline().filter(|due| now >= *due)?;
        let state = self.runs.begin(now)?;
        self.ran_for = Some(state);
        self.begun.write(now);
        Some(Action::RunHook { state, limit: self.limit(state), anew: take(&mut self.anew) })
    }

    /// Returns the time limit of a run.
    fn limit(&self, state: HookState) -> Duration {
        let longer = self.longer.filter(|(killed, _)| *killed == state);
        longer.map_or(self.timing.limit, |(_, limit)| limit)
    }

    pub(super) fn handle_end(&mut self, end: CommandResult, journal: &mut Journal, now: Instant) {
        if matches!(end, CommandResult::Exited(0) | CommandResult::Unneeded) {
            let Some((state, failures)) = self.runs.succeed() else { return };
            if end == CommandResult::Unneeded {
                return;
            }
            self.longer = None;
            journal.log(LogEvent::HookSucceeded { state, failures });
            journal.end_failures(|event| matches!(event, LimitedEvent::HookFailed { .. }));
        } else {
            let wait = (FIRST_RETRY * (1 << self.runs.failures.min(9))).min(LONGEST_RETRY);
            let not_before = self.runs.newest.map_or(now, |state| self.not_before(state));
            let Some(state) = self.runs.fail(|_| not_before.max(now + wait)) else { return };
            if self.runs.newest != Some(state) {
                self.runs.failures = 0;
            }
            self.ran_for = None;
            journal.counters.hook_failures += 1;
            let limit = self.limit(state);
            journal.log_limited(LimitedEvent::HookFailed { state, end, limit }, now);
            if end == CommandResult::TimedOut {
                let longest = self.timing.limit.max(LONGEST_LIMIT);
                self.longer = Some((state, (limit * 2).min(longest)));
            }
        }
        journal.counters.hook_runs += 1;
    }

    /// Returns whether to log the output of the run that ends now: always of a success, and of a failure if that has a line.
    pub(super) fn logs_output(&self, end: CommandResult, journal: &Journal, now: Instant) -> bool {
        let failure = |state| LimitedEvent::HookFailed { state, end, limit: self.limit(state) };
        end == CommandResult::Exited(0)
            || self.runs.in_flight.is_some_and(|state| journal.would_log(&failure(state), now))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.begun.oldest().filter(|_| self.begun.is_full());
        self.runs.deadline().map(|due| oldest.map_or(due, |oldest| due.max(*oldest + PERIOD)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(90);

    fn schedule(delay: u64, predecessor: Option<(State, Instant)>) -> HookSchedule {
        let delay = Duration::from_secs(delay);
        let predecessor = predecessor.map(|(state, since)| (state, Some(since)));
        HookSchedule::new(1, HookTiming { limit: LIMIT, delay }, predecessor)
    }

    fn at(secs: i64) -> Instant {
        Instant::from_secs(secs)
    }

    #[test]
    fn failed_run_is_repeated_after_1_s_and_then_less_and_less_often() {
        let (mut hook, mut journal, mut now) = (schedule(0, None), Journal::default(), at(0));
        hook.post(Some(HookState::Backup), now);
        for secs in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(hook.next_action(now).is_some());
            hook.handle_end(CommandResult::Exited(1), &mut journal, now);
            assert_eq!(hook.deadline(), Some(now + Duration::from_secs(secs)));
            now += Duration::from_secs(secs);
        }
        // A new state does not wait, and begins anew.
        hook.post(Some(HookState::Master), now);
        assert!(hook.next_action(now).is_some());
        hook.handle_end(CommandResult::Exited(1), &mut journal, now);
        assert_eq!(hook.deadline(), Some(now + FIRST_RETRY));
    }

    /// The helper would hold the sixth back until its state is old.
    #[test]
    fn five_runs_begin_in_ten_seconds() {
        use HookState::{Backup, Master};
        let (mut hook, mut journal) = (schedule(0, None), Journal::default());
        for (secs, state) in (0..).zip([Master, Backup, Master, Backup, Master]) {
            hook.post(Some(state), at(secs));
            assert!(hook.next_action(at(secs)).is_some());
            hook.handle_end(CommandResult::Exited(0), &mut journal, at(secs));
        }
        hook.post(Some(Backup), at(5));
        assert_eq!(hook.deadline(), Some(at(10)));
    }

    #[test]
    fn time_limit_doubles_after_a_killed_run_of_the_state() {
        let (mut hook, mut journal, mut now) = (schedule(0, None), Journal::default(), at(0));
        let run = |hook: &mut HookSchedule, state, now| {
            hook.post(Some(state), now);
            let Some(Action::RunHook { limit, .. }) = hook.next_action(now) else { return 0 };
            limit.secs()
        };
        for secs in [90, 180, 360, 600, 600] {
            assert_eq!(run(&mut hook, HookState::Backup, now), secs);
            hook.handle_end(CommandResult::TimedOut, &mut journal, now);
            now += LONGEST_RETRY;
        }
        assert_eq!(run(&mut hook, HookState::Backup, now), 600);
        hook.handle_end(CommandResult::Exited(1), &mut journal, now);
        assert_eq!(run(&mut hook, HookState::Master, now), 90);
        hook.handle_end(CommandResult::Exited(0), &mut journal, now);
        assert_eq!(run(&mut hook, HookState::Backup, now), 90);
    }

    #[test]
    fn state_that_is_given_up_within_the_delay_runs_nothing() {
        let (mut hook, mut journal) = (schedule(5, None), Journal::default());
        hook.post(Some(HookState::Backup), at(0));
        assert_eq!((hook.next_action(at(4)), hook.deadline()), (None, Some(at(5))));
        assert!(hook.next_action(at(5)).is_some());
        hook.handle_end(CommandResult::Exited(0), &mut journal, at(6));
        hook.post(Some(HookState::Master), at(7));
        hook.post(Some(HookState::Backup), at(8));
        assert_eq!(hook.deadline(), None);
        hook.post(Some(HookState::Fault), at(9));
        let run = Action::RunHook { state: HookState::Fault, limit: LIMIT, anew: false };
        assert_eq!(hook.next_action(at(9)), Some(run));
    }

    #[test]
    fn delay_counts_from_the_change_over_a_restart() {
        for (last, since, due) in
            [(State::Active, 8, 13), (State::Active, -50, 10), (State::Backup, -50, 15)]
        {
            let mut hook = schedule(5, Some((last, at(since))));
            hook.post(Some(HookState::Master), at(10));
            assert_eq!(hook.deadline(), Some(at(due)));
            // Only the first state is the predecessor's.
            hook.post(Some(HookState::Backup), at(20));
            assert_eq!(hook.deadline(), Some(at(25)));
        }
    }

    #[test]
    fn another_run_for_the_same_state_waits_for_the_delay() {
        let (mut hook, mut journal) = (schedule(5, None), Journal::default());
        hook.run_again();
        hook.post(None, at(0));
        hook.post(Some(HookState::Master), at(0));
        hook.run_again();
        hook.post(Some(HookState::Master), at(1));
        assert_eq!(hook.deadline(), Some(at(5)));
        assert!(hook.next_action(at(5)).is_some());
        hook.handle_end(CommandResult::Exited(0), &mut journal, at(6));
        hook.run_again();
        hook.post(Some(HookState::Master), at(7));
        assert!(hook.next_action(at(7)).is_some());
    }

    #[test]
    fn only_a_run_that_is_asked_for_omits_nothing() {
        let (mut hook, mut journal) = (schedule(0, None), Journal::default());
        let mut anew = |hook: &mut HookSchedule, now| match hook.next_action(now) {
            Some(Action::RunHook { anew, .. }) => {
                hook.handle_end(CommandResult::Exited(1), &mut journal, now);
                anew
            }
            other => panic!("{other:?}"),
        };
        hook.post(Some(HookState::Master), at(0));
        assert!(!anew(&mut hook, at(0)) && !anew(&mut hook, at(1)));
        hook.run_again();
        hook.post(Some(HookState::Master), at(2));
        assert!(anew(&mut hook, at(11)) && !anew(&mut hook, at(30)));
    }

    #[test]
    fn exit_waits_for_runs_other_than_for_master() {
        use HookState::{Backup, Fault, Master};
        for (first, then, waits) in [
            (Master, None, false),
            (Backup, None, true),
            (Fault, None, true),
            (Master, Some(Backup), true),
            (Backup, Some(Master), true),
        ] {
            let (mut hook, mut journal) = (schedule(5, None), Journal::default());
            hook.post(Some(first), at(0));
            assert!(first == Fault || hook.next_action(at(1)).is_none(), "it is delayed");
            hook.handle_exit(at(1));
            assert!(hook.next_action(at(1)).is_some());
            hook.post(then, at(2));
            assert_eq!(hook.delays_exit(), waits, "{first:?} {then:?}");
            // A failed run is not repeated.
            hook.handle_end(CommandResult::Exited(1), &mut journal, at(3));
            let next = then.filter(|state| *state != Master);
            assert_eq!(
                (hook.next_action(at(3)).is_some(), hook.delays_exit()),
                (then.is_some(), next.is_some())
            );
        }
    }
}
