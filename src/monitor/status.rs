//! What there is to be seen: the status, the counters, and when the metrics file is written with them.
//!
//! The file is written at once on request, and when something has changed that is not counted: the state, what the
//! agent and the hook have yet to be told, or a trouble. Otherwise as soon as a figure differs from what it says, but at
//! most every 15 s. So there is a deadline only while one does.

use super::journal::Journal;
use super::{Action, Duration, Failure, HookState, Instant, LogEvent, State};
use crate::errno::Errno;
use crate::wire::cidr::Cidr;
use crate::wire::rtnl::Mac;

/// What SIGUSR1 shows, and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The last state reported.
    pub state: Option<State>,
    /// Since when.
    pub changed_at: Option<Instant>,
    /// The index of the watched interface.
    pub ifindex: Option<u32>,
    /// The state that the agent has not confirmed.
    pub undelivered: Option<State>,
    /// What the hook is told that it has not succeeded for.
    pub hook_pending: Option<HookState>,
    /// What is wrong at present.
    pub troubles: Troubles,
    /// The station that claims the VIP while it is ours, once that has been told.
    pub claimant: Option<Mac>,
    /// What has been counted.
    pub counters: Counters,
}

/// What is wrong, for as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This station claims the VIP while it is ours.
    SplitBrain(Mac),
    /// There is no interface of the watched name.
    InterfaceAbsent,
    /// The VIP's address is on the interface with this index, but not as told.
    Misplaced(u32, Cidr),
    /// The VIP has failed duplicate address detection: the kernel does not use it, so it is not here.
    DuplicateAddress,
    /// The last attempt to tell the agent failed.
    AgentFails,
    /// The last run of the hook failed.
    HookFails,
}

/// Each trouble in a place of its own.
pub type Troubles = [Option<Trouble>; 6];

/// How often things have happened since the start.
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

/// From one write to the next, if only figures have changed.
const PERIOD: Duration = Duration::from_secs(15);

/// How far the writing of the metrics file has come.
#[derive(Debug, Default)]
pub(super) struct MetricsSchedule {
    /// The figures that it has. None: that is not known.
    written: Option<Counters>,
    /// What there was to be seen beside them when that was last looked at.
    gauges: Status,
    requested: bool,
    /// It is time: all that was ready has been handled.
    is_time: bool,
    /// It is not written before this for figures alone.
    not_before: Option<Instant>,
}

/// What it is written for: all that is counted but events. A host's addresses may come and go all day, so they
/// alone are no reason.
fn noteworthy(counters: &Counters) -> Counters {
    Counters { events: 0, ..*counters }
}

impl MetricsSchedule {
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Has it written at once if something else than a figure has changed. Claimants may be many.
    pub(super) fn follow(&mut self, status: &Status) {
        let gauges = Status { counters: Counters::default(), ..*status };
        self.requested |= self.gauges != gauges;
        self.gauges = gauges;
    }

    /// Handles the result of a write, since which nothing has been counted. One that failed is repeated later, unless
    /// another instance has the file (`EEXIST`).
    pub(super) fn handle_write(
        &mut self,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        self.not_before = Some(now + PERIOD);
        match result {
            Ok(()) => self.written = Some(noteworthy(&journal.counters)),
            Err(errno) => {
                journal.counters.metrics_failures += 1;
                // Another instance's is left to it, and looked at again only for new figures.
                let is_another = errno == Errno::EXISTS;
                self.written = is_another.then(|| noteworthy(&journal.counters));
                journal.log_limited(|count| LogEvent::MetricsNotWritten { errno, count }, now);
            }
        }
    }

    /// Handles that the loop has come round: if it is due now, nothing that is ready has to wait for it.
    pub(super) fn handle_queue_empty(&mut self, counters: &Counters, now: Instant) {
        self.is_time = self.deadline(counters).is_some_and(|deadline| now >= deadline);
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        if !core::mem::take(&mut self.is_time) {
            return None;
        }
        self.requested = false;
        Some(Action::WriteMetrics)
    }

    pub(super) fn deadline(&self, counters: &Counters) -> Option<Instant> {
        if self.requested {
            return Some(Instant::ZERO);
        }
        (self.written != Some(noteworthy(counters)))
            .then_some(self.not_before.unwrap_or(Instant::ZERO))
    }
}
