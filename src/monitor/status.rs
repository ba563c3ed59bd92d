//! The status, the counters, and the schedule of the metrics file.
//!
//! The file is written at once on request, and when a gauge has changed: the state, a pending state of the agent or the
//! hook, or a trouble. A new value of a counter is written at most every 15 s.

use super::journal::Journal;
use super::{Action, Cause, Duration, Failure, HookState, Instant, LimitedEvent, State};
use crate::errno::Errno;
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Mac;

/// The status in the log (SIGUSR1) and in the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The last state reported.
    pub state: Option<State>,
    /// The time of its report.
    pub changed_at: Option<Instant>,
    /// The index of the watched interface.
    pub ifindex: Option<u32>,
    /// The newest state, until the agent has answered 200 for it.
    pub undelivered: Option<State>,
    /// The newest state of the hook, until the hook has succeeded for it.
    pub hook_pending: Option<HookState>,
    /// The current troubles.
    pub troubles: Troubles,
    /// Whether claims of other stations are received while the VIP is present.
    pub listens: bool,
    /// The other station that claims the VIP, once the split brain has been logged.
    pub claimant: Option<Mac>,
    /// The counters.
    pub counters: Counters,
}

/// A problem while it lasts, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This station claims the VIP while it is on the watched interface.
    SplitBrain(Mac),
    /// The state file could not be written: it holds an older state, or none.
    StateFileFails,
    /// Another process has replaced the state file: two daemons write one file.
    StateFileShared,
    /// The next change of the state file needs room on the disk.
    SpareFails,
    /// There is no interface of the watched name.
    InterfaceAbsent,
    /// The watched interface is set down or has no carrier.
    InterfaceDown(Cause),
    /// The VIP's address is on this interface, with this prefix length, but not where it is expected.
    Misplaced(InterfaceName, Cidr),
    /// The VIP has failed duplicate address detection: the kernel does not use it.
    DuplicateAddress,
    /// keepalived has not run for ten seconds.
    KeepalivedGone,
    /// The last attempt to notify the agent failed.
    AgentFails,
    /// The last run of the hook failed.
    HookFails,
    /// A command of conntrackd failed for this state.
    ConntrackdFails,
    /// The log file could not be reopened: lines go to the old one.
    LogFails,
}

/// One element for each kind of trouble.
pub type Troubles = [Option<Trouble>; 13];

/// Events since the start, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "their metrics have a text each, in `crate::metrics`")]
pub struct Counters {
    pub events: u64,
    pub transitions: u64,
    pub overruns: u64,
    pub malformed: u64,
    pub dumps: u64,
    pub dump_failures: u64,
    pub foreign: u64,
    pub writes: u64,
    pub write_failures: u64,
    pub notifications: u64,
    /// In the order of [`Failure::KINDS`].
    pub notification_failures: [u64; Failure::KINDS.len()],
    pub metrics_failures: u64,
    pub announcements: u64,
    pub announcement_failures: u64,
    pub unannounced: u64,
    pub ignored_links: u64,
    pub claims: u64,
    pub commands: u64,
    pub command_failures: u64,
    pub hook_runs: u64,
    pub hook_failures: u64,
}

/// The least time between two writes if only counters have changed.
const PERIOD: Duration = Duration::from_secs(15);

/// Decides when the metrics file is written.
#[derive(Debug)]
pub(super) struct MetricsSchedule {
    /// The counters in the file. None: unknown.
    written: Option<Counters>,
    /// The last status, without its counters.
    gauges: Status,
    /// When to write the file, at the first empty queue from then on: a hanging disk must not delay other events. None: it
    /// is current.
    due: Option<Instant>,
    /// The queue was found empty when the write was due: write now.
    is_next: bool,
    /// The earliest time of a write if only counters have changed.
    not_before: Instant,
}

/// Returns the counters that are worth a write: all except events, because a host's addresses may change all day.
fn worth_a_write(counters: &Counters) -> Counters {
    Counters { events: 0, ..*counters }
}

impl MetricsSchedule {
    pub(super) fn new() -> Self {
        let gauges = Status::default();
        Self { written: None, gauges, due: None, is_next: false, not_before: Instant::ZERO }
    }

    /// Requests a write.
    pub(super) fn request(&mut self) {
        self.due = Some(Instant::ZERO);
    }

    /// Schedules a write if the file differs from the status.
    pub(super) fn follow(&mut self, status: &Status) {
        let gauges = Status { counters: Counters::default(), ..*status };
        if core::mem::replace(&mut self.gauges, gauges) != gauges {
            self.request();
        } else if self.due.is_none() && self.written != Some(worth_a_write(&status.counters)) {
            self.due = Some(self.not_before);
        }
    }

    /// Handles the result of a write of the current counters. A failed write is retried later.
    pub(super) fn handle_write(
        &mut self,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        self.not_before = now + PERIOD;
        match result {
            Ok(()) => {
                self.written = Some(worth_a_write(&journal.counters));
                journal
                    .end_failures(|event| matches!(event, LimitedEvent::MetricsNotWritten { .. }));
            }
            Err(errno) => {
                journal.counters.metrics_failures += 1;
                // The file is another daemon's: the next attempt waits for a change.
                let is_another = errno == Errno::EXISTS;
                self.written = is_another.then(|| worth_a_write(&journal.counters));
                journal.log_limited(LimitedEvent::MetricsNotWritten { errno }, now);
            }
        }
    }

    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        self.is_next = self.due.is_some_and(|due| now >= due);
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        if !core::mem::take(&mut self.is_next) {
            return None;
        }
        self.due = None;
        Some(Action::WriteMetrics)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}
