//! Whom the core tells: the disk, the agent, conntrackd.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    CommandResult, Duration, Failure, Instant, Outcome, Replaced, State, SyncCommand,
};

use super::retry::Retry;

#[derive(Debug, Default)]
pub struct Disk {
    pub works: bool,
    /// The next write takes so long.
    pub hangs: Duration,
    pub file: Option<State>,
    /// Another process has replaced the file since the last write, or had before that.
    pub is_foreign: bool,
    pub was_foreign: bool,
    pub log_fails: bool,
    pub retry: Retry,
}

impl Disk {
    pub fn write(&mut self, state: State, now: Instant) -> Result<Replaced, Errno> {
        self.retry.begin();
        if !self.works {
            self.retry.fail(now);
            return Err(Errno(28));
        }
        self.retry.be_anew();
        self.file = Some(state);
        self.was_foreign = std::mem::take(&mut self.is_foreign);
        Ok(if self.was_foreign { Replaced::Foreign } else { Replaced::Own })
    }
}

/// An agent answers 200, and acts on it when it has gathered reports for this long.
const BATCHING: Duration = Duration::from_secs(2);

/// Between these is the wait after a full backlog.
const FIRST_WAIT: Duration = Duration::from_millis(4);
const LONGEST_WAIT: Duration = Duration::from_millis(700);

#[derive(Debug, Default)]
pub struct Agent {
    pub listens: bool,
    /// It listens, but too many wait already.
    pub is_full: bool,
    /// Since when every attempt has found it full.
    found_full: Option<Instant>,
    connection: Connection,
    /// Its reply to the attempt in flight, which has come but has not been read.
    unread: Option<Reply>,
    /// What it last answered with 200.
    pub acknowledged: Option<State>,
    /// What it has acted on, and what it will have acted on then unless it ends before.
    acted_on: Option<State>,
    batched: Option<(State, Instant)>,
    /// How often it has been started, and how often it had been when it last answered.
    instance: u32,
    answered: Option<u32>,
    answered_at: Option<Instant>,
    /// An attempt has found it away, and it has not answered 200 since.
    was_away: bool,
    /// Until then it knows no routers, as it has been started.
    knows_routers_at: Option<Instant>,
    /// The state of the last attempt, and when that failed.
    failed: Option<(State, Instant)>,
    /// How many attempts have, and no line has said yet that it is back.
    pub failures: u32,
    pub retry: Retry,
    /// An attempt has, of which the core has yet to hear.
    pub has_failed: bool,
    /// When the last attempt was made.
    called_at: Option<Instant>,
    /// What is to be reported anew need not wait.
    anew: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Connection {
    #[default]
    None,
    InFlight(State),
    Lingering,
}

impl Agent {
    pub fn new() -> Self {
        Self { listens: true, ..Self::default() }
    }

    /// It is started, or ends. One that has been started takes so long to know its routers, and answers before that.
    pub fn listen(&mut self, listens: bool, starts_for: Duration, now: Instant) {
        if !listens {
            self.acted_on = self.heeded(now);
            self.batched = None;
        } else if !self.listens {
            self.instance += 1;
            // The core looks for ten minutes, and an agent that stays away for longer is left to its operator.
            if self.answered_at.is_some_and(|at| now > at + Duration::from_secs(590)) {
                self.acted_on = self.acknowledged;
            }
            // One that was never heard of, nor missed, cannot be known to be another.
            let is_known = self.was_away || self.answered.is_some();
            self.knows_routers_at = is_known.then_some(now + starts_for);
        }
        self.listens = listens;
    }

    /// What it has acted on.
    pub fn heeded(&self, now: Instant) -> Option<State> {
        let batched = self.batched.filter(|(_, at)| now >= *at);
        batched.map(|(state, _)| state).or(self.acted_on)
    }

    /// Another one has taken its place since it answered.
    pub fn is_replaced(&self) -> bool {
        self.answered.is_some_and(|answered| answered != self.instance)
    }

    pub fn is_connected(&self) -> bool {
        self.connection != Connection::None
    }

    pub fn is_in_flight(&self) -> bool {
        self.in_flight().is_some()
    }

    pub fn in_flight(&self) -> Option<State> {
        if let Connection::InFlight(state) = self.connection { Some(state) } else { None }
    }

    /// To reply.
    pub fn has_had_its_time(&self, now: Instant) -> bool {
        self.called_at.is_none_or(|at| now >= at + Duration::from_secs(5))
    }

    /// The next attempt is a report, and no retry.
    pub fn expect_report(&mut self) {
        self.anew = true;
    }

    /// Some: that came of it at once.
    pub fn notify(&mut self, state: State, now: Instant) -> Option<Outcome> {
        assert!(!self.is_in_flight(), "p6_one_attempt_at_a_time");
        self.called_at = Some(now);
        self.retry.begin();
        let anew = std::mem::take(&mut self.anew);
        if let Some((failed, at)) = self.failed.take()
            && failed == state
            && !anew
        {
            // Most make room soon: many fail over together.
            let full =
                self.found_full.map(|since| ((at - since) / 64).clamp(FIRST_WAIT, LONGEST_WAIT));
            let pause = full.unwrap_or(Duration::from_millis(50));
            assert!(now >= at + pause, "p6_agent_is_not_hammered");
        } else {
            self.found_full = None;
        }
        if self.listens && !self.is_full {
            self.connection = Connection::InFlight(state);
            return None;
        }
        self.connection = Connection::None;
        self.failed = Some((state, now));
        self.failures += 1;
        self.has_failed = true;
        if self.listens {
            self.retry.fail_as_full(now);
            self.found_full.get_or_insert(now);
            return Some(Outcome::Failed(Failure::BacklogFull));
        }
        self.retry.fail(now);
        self.found_full = None;
        // It starts when it listens again.
        self.was_away = true;
        Some(Outcome::Failed(Failure::Refused))
    }

    /// Returns whether there was still a connection.
    pub fn hang_up(&mut self, now: Instant) -> bool {
        let is_connected = self.is_connected();
        self.fail(now);
        is_connected
    }

    fn fail(&mut self, now: Instant) {
        if let Connection::InFlight(state) = self.connection {
            (self.failed, self.found_full) = (Some((state, now)), None);
            self.failures += 1;
            self.has_failed = true;
            self.retry.fail(now);
        }
        self.connection = Connection::None;
    }

    /// It replies, and nobody reads that yet.
    pub fn reply_unread(&mut self, reply: Reply) {
        if self.is_in_flight() {
            self.unread.get_or_insert(reply);
        }
    }

    /// The reply, if there is one to be read.
    pub fn read_reply(&mut self, now: Instant) -> Option<Outcome> {
        self.unread.map(|reply| self.reply(reply, now))
    }

    /// What the core sees of a reply, unless there was one before.
    pub fn reply(&mut self, reply: Reply, now: Instant) -> Outcome {
        let reply = self.unread.take().unwrap_or(reply);
        let Connection::InFlight(state) = self.connection else {
            // Without a connection that is an echo of an older one.
            self.connection = Connection::None;
            return Outcome::Closed;
        };
        if let Err(failure) = reply {
            self.fail(now);
            return Outcome::Failed(failure);
        }
        self.retry.be_anew();
        self.was_away = false;
        self.acknowledged = Some(state);
        if self.listens && self.knows_routers_at.is_none_or(|at| now >= at) {
            self.acted_on = self.heeded(now);
            self.batched = Some((state, now + BATCHING));
        }
        self.connection = Connection::Lingering;
        self.answered_at = Some(now);
        let before = self.answered.replace(self.instance);
        Outcome::Delivered { by_another: before.is_some_and(|before| before != self.instance) }
    }
}

/// What comes of an attempt: 200, or another end.
pub type Reply = Result<(), Failure>;

/// The process that runs conntrackd's commands.
#[derive(Debug)]
pub struct Conntrackd {
    pub lives: bool,
    /// The command under way, and for the how-manieth state it was begun.
    running: Option<(SyncCommand, usize)>,
    /// What the newest state wants done, how many states there have been, and how much of it has begun.
    wanted: &'static [SyncCommand],
    states: usize,
    begun: usize,
    /// Since when there has been no configuration for that.
    unconfigured_since: Option<Instant>,
    /// How the commands of the newest state have ended.
    results: Vec<CommandResult>,
}

impl Conntrackd {
    pub fn new(lives: bool) -> Self {
        Self {
            lives,
            running: None,
            wanted: &[],
            states: 0,
            begun: 0,
            unconfigured_since: None,
            results: Vec::new(),
        }
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// A new state has been reported.
    pub fn want(&mut self, state: State) {
        const ACTIVE: [SyncCommand; 4] =
            [SyncCommand::Commit, SyncCommand::Flush, SyncCommand::Resync, SyncCommand::Bulk];
        const BACKUP: [SyncCommand; 2] = [SyncCommand::Timers, SyncCommand::Control];
        (self.begun, self.unconfigured_since) = (0, None);
        self.states += 1;
        self.results.clear();
        self.wanted = match state {
            State::Active => &ACTIVE,
            State::Backup => &BACKUP,
        };
    }

    pub fn run(&mut self, command: SyncCommand) {
        assert!(self.lives, "p13_helper_lives");
        assert_eq!(self.running, None, "p13_one_command_at_a_time");
        assert_eq!(Some(&command), self.wanted.get(self.begun), "p13_commands_are_in_order");
        self.begun += 1;
        self.running = Some((command, self.states));
    }

    /// The command under way ends, if there is one.
    pub fn end(&mut self, result: CommandResult, now: Instant) {
        let Some((_, state)) = self.running.take() else { return };
        if state != self.states {
            return;
        }
        if result == CommandResult::NotConfigured(Errno::NOT_FOUND) {
            // All of them again, until the configuration has not been there for ten seconds.
            let since = *self.unconfigured_since.get_or_insert(now);
            if now < since + Duration::from_secs(10) {
                self.results.clear();
                self.begun = 0;
                return;
            }
            self.begun = self.wanted.len();
        }
        self.results.push(result);
    }

    /// The commands wait for their configuration.
    pub fn is_unconfigured(&self) -> bool {
        self.unconfigured_since.is_some()
    }

    /// Returns whether it has lived.
    pub fn die(&mut self) -> bool {
        self.running = None;
        std::mem::take(&mut self.lives)
    }

    /// All commands have ended, and one with success.
    pub fn is_synced(&self) -> bool {
        self.is_done() && self.results.contains(&CommandResult::Exited(0))
    }

    pub fn has_failed(&self) -> bool {
        self.lives && self.results.iter().any(|result| *result != CommandResult::Exited(0))
    }

    /// Everything that the newest state wants done has been.
    pub fn is_done(&self) -> bool {
        !self.lives || (self.begun == self.wanted.len() && self.running.is_none())
    }
}
