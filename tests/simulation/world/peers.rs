//! The consumers of the state: disk and agent.

use keepwatch::errno::Errno;
use keepwatch::monitor::{Duration, Failure, FoundStateFile, Instant, Outcome, State};

use super::retry::Retry;

#[derive(Debug, Default)]
pub struct Disk {
    /// It has room for new files.
    pub works: bool,
    /// It cannot exchange two files.
    pub cannot_exchange: bool,
    /// The spare: no file, a file that another process has touched, or one that holds a word.
    pub spare: Spare,
    /// The core's last preparation of the spare failed.
    pub spare_fails: bool,
    pub spare_retry: Retry,
    /// The core has not prepared the spare since its last write.
    pub is_unprepared: bool,
    /// How long the next write takes.
    pub hangs: Duration,
    /// The word in the file.
    pub file: Option<State>,
    /// The word that the core last wrote.
    pub written: Option<State>,
    /// The core's last write failed.
    pub fails: bool,
    /// The file is another process's.
    pub is_foreign: bool,
    /// The file was another process's at the last check.
    pub was_foreign: bool,
    /// A check has found it changed, and no line has said so yet.
    pub was_changed: bool,
    pub log_fails: bool,
    pub retry: Retry,
}

impl Disk {
    /// Writes the state: into a new file if there is room, or by an exchange with the spare.
    pub fn write(&mut self, state: State, now: Instant) -> Result<(), Errno> {
        self.retry.begin();
        let is_ready = self.spare == Spare::Holds(state) && !self.cannot_exchange;
        let exchanges = is_ready || !self.works && self.spare != Spare::None;
        self.fails = !self.works && (!exchanges || self.cannot_exchange);
        if self.fails {
            self.retry.fail(now);
            return Err(Errno(28));
        }
        self.retry.reset();
        if exchanges {
            // What was the state file is the spare now, if there was one. Another process's has to go.
            let is_own = self.file.is_some() && !self.is_foreign;
            self.spare = if is_own { Spare::Touched } else { Spare::None };
        }
        (self.file, self.written, self.is_foreign) = (Some(state), Some(state), false);
        self.is_unprepared = true;
        self.spare_retry.reset();
        Ok(())
    }

    /// Prepares the spare for the change after this state.
    pub fn prepare(&mut self, state: State, now: Instant) -> Result<(), Errno> {
        assert_eq!(self.written, Some(state), "p3_spare_is_for_the_next_change");
        self.spare_retry.begin();
        self.is_unprepared = false;
        self.spare_fails = !self.cannot_exchange && !self.works && self.spare == Spare::None;
        if self.spare_fails {
            self.spare_retry.fail(now);
            return Err(Errno(28));
        }
        self.spare_retry.reset();
        self.spare = if self.cannot_exchange { Spare::None } else { Spare::Holds(state.other()) };
        Ok(())
    }

    /// Another process replaces the file, or without a word removes it.
    pub fn replace(&mut self, word: Option<State>) {
        (self.file, self.is_foreign) = (word, word.is_some());
    }

    /// The agent writes the file in place.
    pub fn overwrite(&mut self, word: State) {
        self.file = self.file.map(|_| word);
    }

    /// Another process writes the spare, or removes it.
    pub fn touch_spare(&mut self, removes: bool) {
        if self.spare != Spare::None {
            self.spare = if removes { Spare::None } else { Spare::Touched };
        }
    }

    pub fn find(&self) -> FoundStateFile {
        match self.is_foreign {
            true => FoundStateFile::Foreign,
            false if self.file == self.written => {
                let is_ready = self.spare != Spare::None || self.cannot_exchange;
                if is_ready { FoundStateFile::Intact } else { FoundStateFile::WithoutSpare }
            }
            false => FoundStateFile::Changed,
        }
    }
}

/// The least time between an agent's 200 and its acting on the notification, which it batches with others.
const BATCHING: Duration = Duration::from_secs(2);

/// The bounds of the shortest wait after a full backlog.
const FULL: [Duration; 2] = [Duration::from_millis(6), Duration::from_millis(1_666)];

/// The file beside the state file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spare {
    #[default]
    None,
    Touched,
    Holds(State),
}

#[derive(Debug, Default)]
pub struct Agent {
    pub listens: bool,
    /// Its backlog is full.
    pub is_full: bool,
    /// The first of the consecutive attempts that have found it full.
    found_full: Option<Instant>,
    connection: Connection,
    /// Its reply to the attempt in flight, which the core has not read yet.
    unread: Option<Reply>,
    /// The state that it last answered with 200.
    pub acknowledged: Option<State>,
    /// The states that it has acted on, or will act on unless it ends before: each in its own thread, and when.
    threads: Vec<(State, Instant)>,
    /// How much longer the next thread takes, as on a busy node.
    pub next_thread_takes: Duration,
    /// The number of its starts.
    instance: u32,
    /// That number when it last answered.
    answered: Option<u32>,
    /// An attempt has failed, and it has not answered 200 since.
    was_away: bool,
    /// When it knows its routers after its start.
    knows_routers_at: Option<Instant>,
    /// The state and the time of the last attempt, if that failed.
    failed: Option<(State, Instant)>,
    /// The number of failed attempts since its last 200.
    failures: u32,
    /// That number before its last 200, until the line about its return.
    pub returned: u32,
    pub retry: Retry,
    /// An attempt has failed, and the core has not received that yet.
    pub has_failed: bool,
    /// When the last attempt was made.
    called_at: Option<Instant>,
    /// A repeated report need not wait.
    is_report: bool,
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

    /// Starts or ends the agent. A started agent knows its routers after `starts_for`, and answers before that.
    pub fn listen(&mut self, listens: bool, starts_for: Duration, now: Instant) {
        if !listens {
            self.threads.retain(|(_, at)| now >= *at);
        } else if !self.listens {
            self.instance += 1;
            // Without an earlier attempt, the core cannot know that this agent is a new one.
            let is_known = self.was_away || self.answered.is_some();
            self.knows_routers_at = is_known.then_some(now + starts_for);
        }
        self.listens = listens;
    }

    /// Returns the state that it has acted on last. A slow thread may come after that of a newer state.
    pub fn acted_on_at(&self, now: Instant) -> Option<State> {
        let over = self.threads.iter().filter(|(_, at)| now >= *at);
        over.max_by_key(|(_, at)| *at).map(|(state, _)| *state)
    }

    /// Whether it was restarted since its last answer.
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

    /// Whether it has had its time to reply.
    pub fn has_had_its_time(&self, now: Instant) -> bool {
        self.called_at.is_none_or(|at| now >= at + Duration::from_secs(5))
    }

    /// Expects that the next attempt is a report, not a retry.
    pub fn expect_report(&mut self) {
        self.is_report = true;
    }

    /// Begins an attempt. Returns its outcome if it has one at once.
    pub fn notify(&mut self, state: State, now: Instant) -> Option<Outcome> {
        assert!(!self.is_in_flight(), "p6_one_attempt_at_a_time");
        self.called_at = Some(now);
        self.retry.begin();
        let is_report = std::mem::take(&mut self.is_report);
        if let Some((failed, at)) = self.failed.take()
            && failed == state
            && !is_report
        {
            // A full backlog has room soon, even if many routers fail over together.
            let full = self.found_full.map(|since| ((at - since) / 32).clamp(FULL[0], FULL[1]));
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
        self.was_away = true;
        Some(Outcome::Failed(Failure::Refused))
    }

    /// Ends the connection. Returns whether it still existed.
    pub fn hang_up(&mut self, now: Instant) -> bool {
        if let Connection::InFlight(state) = self.connection {
            // It has the request, and may have hung.
            self.begin_thread(state, now);
        }
        let is_connected = self.is_connected();
        self.fail(now);
        is_connected
    }

    /// Acts on a state later, unless it ends before.
    fn begin_thread(&mut self, state: State, now: Instant) {
        if self.listens && self.knows_routers_at.is_none_or(|at| now >= at) {
            let takes = BATCHING + std::mem::take(&mut self.next_thread_takes);
            self.threads.push((state, now + takes));
        }
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

    /// Replies, without the core reading that yet.
    pub fn reply_unread(&mut self, reply: Reply) {
        if self.is_in_flight() {
            self.unread.get_or_insert(reply);
        }
    }

    /// Returns the outcome of an unread reply, if any.
    pub fn read_reply(&mut self, now: Instant) -> Option<Outcome> {
        self.unread.map(|reply| self.reply(reply, now))
    }

    /// Returns the outcome of a reply, or of an earlier unread one.
    pub fn reply(&mut self, reply: Reply, now: Instant) -> Outcome {
        let reply = self.unread.take().unwrap_or(reply);
        let Connection::InFlight(state) = self.connection else {
            // Without a connection, the reply belongs to an older one.
            self.connection = Connection::None;
            return Outcome::Closed;
        };
        if let Err(failure) = reply {
            self.fail(now);
            return Outcome::Failed(failure);
        }
        self.retry.reset();
        self.was_away = false;
        self.acknowledged = Some(state);
        self.returned = std::mem::take(&mut self.failures);
        self.begin_thread(state, now);
        self.connection = Connection::Lingering;
        let before = self.answered.replace(self.instance);
        Outcome::Delivered { by_another: before.is_some_and(|before| before != self.instance) }
    }
}

/// The end of an attempt: 200, or a failure.
pub type Reply = Result<(), Failure>;
