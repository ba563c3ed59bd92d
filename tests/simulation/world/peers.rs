//! Whom the core tells: the disk, the agent, conntrackd.

use keepwatch::errno::Errno;
use keepwatch::monitor::{CommandResult, Duration, Failure, Instant, Outcome, State, SyncCommand};

#[derive(Debug)]
pub struct Disk {
    pub works: bool,
    /// The next write takes so long.
    pub hangs: Duration,
    pub file: Option<State>,
}

impl Disk {
    pub fn write(&mut self, state: State) -> Result<State, Errno> {
        if !self.works {
            return Err(Errno(28));
        }
        self.file = Some(state);
        Ok(state)
    }
}

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
    /// Of that, what it has acted on.
    pub heeded: Option<State>,
    /// Somebody has found it away, and it has not said 200 since.
    was_away: bool,
    /// Until then it knows no routers, as it has been started.
    knows_routers_at: Option<Instant>,
    /// How long it takes from its start until it knows them.
    pub starts_for: Duration,
    /// The state of the last attempt, and when that failed.
    failed: Option<(State, Instant)>,
    /// How many attempts have, and nobody has said yet that it is back.
    pub failures: u32,
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
        assert!(!self.is_in_flight(), "two attempts at once");
        self.called_at = Some(now);
        let anew = std::mem::take(&mut self.anew);
        if let Some((failed, at)) = self.failed.take()
            && failed == state
            && !anew
        {
            // Most make room at once: many fail over together.
            let soon = self.found_full.is_some_and(|since| at < since + Duration::from_secs(1));
            let pause = Duration::from_millis(if soon { 2 } else { 50 });
            assert!(now >= at + pause, "hammered at");
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
        if self.listens {
            self.found_full.get_or_insert(now);
            return Some(Outcome::Failed(Failure::BacklogFull));
        }
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
        if std::mem::take(&mut self.was_away) {
            self.knows_routers_at = Some(now + self.starts_for);
        }
        self.acknowledged = Some(state);
        if self.knows_routers_at.is_none_or(|at| now >= at) {
            self.heeded = Some(state);
        }
        self.connection = Connection::Lingering;
        Outcome::Delivered
    }
}

/// What comes of an attempt: 200, or another end.
pub type Reply = Result<(), Failure>;

/// The process that runs conntrackd's commands.
#[derive(Debug)]
pub struct Conntrackd {
    pub lives: bool,
    running: Option<SyncCommand>,
    /// What the newest state wants done, and how much of it has begun.
    wanted: &'static [SyncCommand],
    begun: usize,
    /// Since when there has been no configuration for that.
    unconfigured_since: Option<Instant>,
    /// One of these commands has succeeded, or there was no configuration for any.
    is_synced: bool,
}

impl Conntrackd {
    pub fn new(lives: bool) -> Self {
        Self {
            lives,
            running: None,
            wanted: &[],
            begun: 0,
            unconfigured_since: None,
            is_synced: false,
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
        (self.begun, self.unconfigured_since, self.is_synced) = (0, None, false);
        self.wanted = match state {
            State::Active => &ACTIVE,
            State::Backup => &BACKUP,
        };
    }

    pub fn run(&mut self, command: SyncCommand) {
        assert!(self.lives, "nobody is there to run it");
        assert_eq!(self.running, None, "two commands at once");
        assert_eq!(Some(&command), self.wanted.get(self.begun), "not the next of the newest state");
        self.begun += 1;
        self.running = Some(command);
    }

    /// The command under way ends, if there is one.
    pub fn end(&mut self, result: CommandResult, now: Instant) {
        let ran = self.running.take().is_some();
        if ran && result == CommandResult::NotConfigured(Errno::NOT_FOUND) {
            // All of them again, until the configuration has not been there for ten seconds.
            let since = *self.unconfigured_since.get_or_insert(now);
            let is_over = now >= since + Duration::from_secs(10);
            self.begun = if is_over { self.wanted.len() } else { 0 };
            self.is_synced = is_over;
        }
        self.is_synced |= ran && result == CommandResult::Exited(0);
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

    /// Whether the commands have changed anything, or never will.
    pub fn is_synced(&self) -> bool {
        self.is_done() && self.is_synced
    }

    /// Everything that the newest state wants done has been.
    pub fn is_done(&self) -> bool {
        !self.lives || (self.begun == self.wanted.len() && self.running.is_none())
    }
}
