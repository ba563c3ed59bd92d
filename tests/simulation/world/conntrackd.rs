//! conntrackd, and the helper that runs its commands.

use keepwatch::errno::Errno;
use keepwatch::monitor::{CommandResult, Duration, Instant, LogEvent, State, SyncCommand};

use super::retry::Retry;

/// The bounds of the longest wait for another round, which doubles with each failure.
const REPEATED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// How long the commands wait for their configuration, and how often they are retried meanwhile.
const CONFIGURATION: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];
const CHECK: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Task {
    Command(SyncCommand),
    Check,
}

#[derive(Debug, Default)]
pub struct Conntrackd {
    pub lives: bool,
    /// What runs, and the number of its state.
    running: Option<(Task, usize)>,
    /// The number of states so far.
    states: usize,
    state: Option<State>,
    /// The commands of this round, the number of those begun, and the results of those that have ended.
    round: &'static [SyncCommand],
    begun: usize,
    results: Vec<CommandResult>,
    /// The last round has failed.
    repeats: bool,
    /// How each command has last failed for this state, unless it has succeeded since.
    failures: Vec<(SyncCommand, CommandResult)>,
    not_before: Option<Instant>,
    pub retry: Retry,
    /// Since when the commands of the state have had no configuration.
    unconfigured_since: Option<Instant>,
    /// conntrackd was restarted since the last command.
    pub was_restarted: bool,
    /// The end of the last round, or of the last check.
    rests_since: Option<Instant>,
    /// Lines that must follow.
    lines: Vec<LogEvent>,
}

impl Conntrackd {
    pub fn new(lives: bool) -> Self {
        Self { lives, ..Self::default() }
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Expects the commands for a new state.
    pub fn want(&mut self, state: State) {
        const ACTIVE: [SyncCommand; 4] =
            [SyncCommand::Commit, SyncCommand::Flush, SyncCommand::Resync, SyncCommand::Bulk];
        const BACKUP: [SyncCommand; 2] = [SyncCommand::Timers, SyncCommand::Control];
        (self.unconfigured_since, self.repeats) = (None, false);
        self.states += 1;
        self.state = Some(state);
        (self.retry, self.not_before) = (Retry::default(), None);
        self.failures.clear();
        self.begin_round(match state {
            State::Active => &ACTIVE,
            State::Backup => &BACKUP,
        });
    }

    fn begin_round(&mut self, commands: &'static [SyncCommand]) {
        (self.round, self.begun, self.rests_since) = (commands, 0, None);
        self.results.clear();
    }

    pub fn run(&mut self, command: SyncCommand, now: Instant) {
        assert!(self.lives, "p13_helper_lives");
        assert_eq!(self.running, None, "p13_one_command_at_a_time");
        assert_eq!(Some(&command), self.round.get(self.begun), "p13_commands_are_in_order");
        let has_waited = self.not_before.take().is_none_or(|at| now >= at);
        assert!(has_waited, "p13_conntrackd_is_not_hammered");
        self.retry.begin();
        self.was_restarted = false;
        self.begun += 1;
        self.running = Some((Task::Command(command), self.states));
    }

    /// Begins to check whether it was restarted.
    pub fn check(&mut self, now: Instant) {
        assert!(self.lives && self.running.is_none(), "p13_nothing_runs_beside_a_check");
        let is_due = self.rests_since.is_some_and(|since| now >= since + CHECK);
        assert!(is_due, "p13_check_is_due");
        self.running = Some((Task::Check, self.states));
    }

    /// Ends what runs, if anything. Returns its result: a check has its own.
    pub fn end(&mut self, result: CommandResult, now: Instant) -> CommandResult {
        let Some((task, state)) = self.running.take() else { return result };
        let is_current = state == self.states;
        match task {
            Task::Command(command) => self.end_command(command, is_current, result, now),
            Task::Check => {
                let result = CommandResult::Exited(self.was_restarted.into());
                if is_current {
                    self.end_check(now);
                }
                return result;
            }
        }
        result
    }

    /// Ends a check without a result.
    pub fn fail_check(&mut self, now: Instant) {
        self.running = None;
        self.rests_since = Some(now);
    }

    fn end_check(&mut self, now: Instant) {
        self.rests_since = Some(now);
        if self.was_restarted {
            self.lines.push(LogEvent::ConntrackdRestarted);
            let is_active = self.state == Some(State::Active);
            let again = if is_active { &[SyncCommand::Bulk] } else { &[SyncCommand::Control] };
            self.begin_round(again);
        }
    }

    fn end_command(&mut self, of: SyncCommand, is_current: bool, end: CommandResult, now: Instant) {
        let is_missing = end == CommandResult::NotConfigured(Errno::NOT_FOUND);
        let fails = end != CommandResult::Exited(0);
        let has_line = if is_current { !self.failures.contains(&(of, end)) } else { !is_missing };
        let line = (fails && has_line).then_some(LogEvent::CommandFailed { command: of, end });
        if !is_current {
            return self.lines.extend(line);
        }
        if is_missing {
            // The round is retried until the configuration has been missing for ten seconds.
            let [longest, pause] = CONFIGURATION;
            if now < *self.unconfigured_since.get_or_insert(now) + longest {
                self.not_before = Some(now + pause);
                self.retry.be_due(now + pause);
                return self.begin_round(self.round);
            }
        }
        self.lines.extend(line);
        self.failures.retain(|(known, _)| *known != of);
        self.failures.extend(fails.then_some((of, end)));
        self.results.push(end);
        if is_missing || self.results.len() == self.round.len() {
            self.end_round(is_missing, now);
        }
    }

    fn end_round(&mut self, is_missing: bool, now: Instant) {
        let failed = self.results.iter().position(|result| *result != CommandResult::Exited(0));
        let done = failed.is_none();
        if done || (is_missing && !self.repeats) {
            let state = self.state.expect("a state");
            self.lines.push(LogEvent::Synced { state, done });
        }
        self.repeats = failed.is_some();
        if let Some(failed) = failed {
            let longest = self.retry.fail_between(REPEATED, now);
            self.not_before = Some(now + longest / 2);
            self.begin_round(&self.round[failed..]);
        } else {
            self.retry.reset();
            self.rests_since = Some(now);
        }
    }

    /// Whether the commands wait for their configuration.
    pub fn is_unconfigured(&self) -> bool {
        self.unconfigured_since.is_some()
    }

    /// Ends the helper. Returns whether it was alive.
    pub fn die(&mut self) -> bool {
        self.running = None;
        std::mem::take(&mut self.lives)
    }

    /// Notes a line, which must be one of those that follow.
    pub fn read_line(&mut self, line: &LogEvent) {
        let at = self.lines.iter().position(|expected| expected == line);
        self.lines.remove(at.expect("p13_line_is_true"));
    }

    pub fn has_its_lines(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether a command has failed, and has not succeeded since.
    pub fn has_failed(&self) -> bool {
        let fails = |result: &CommandResult| *result != CommandResult::Exited(0);
        self.lives && (self.repeats || self.results.iter().any(fails))
    }

    /// Whether all commands for the newest state have succeeded, and it was not restarted since.
    pub fn is_done(&self) -> bool {
        !self.lives || self.state.is_none() || (self.rests_since.is_some() && !self.was_restarted)
    }

    /// Whether what is left to do runs, or is scheduled.
    pub fn goes_on(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let is_scheduled = match self.rests_since {
            Some(since) => deadline.is_some_and(|deadline| deadline <= since + CHECK),
            None => self.retry.is_in_time(deadline, now),
        };
        !self.lives || self.state.is_none() || self.is_running() || is_scheduled
    }
}
