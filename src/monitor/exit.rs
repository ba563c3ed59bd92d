//! The end: in time, and not before what has to be told has been.

use super::{Action, Duration, ExitReason, Instant};

/// How long what is under way may delay the exit after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How long to try to tell why nothing can be watched or run any more.
const LOSS_GRACE: Duration = Duration::from_secs(5);

/// The exit that has been asked for, if any.
#[derive(Debug, Default)]
pub(super) struct Exit(Option<Pending>);

#[derive(Debug)]
struct Pending {
    reason: ExitReason,
    /// To exit at the latest.
    deadline: Instant,
    /// What the kernel had told when the exit was asked for has been read.
    queue_read: bool,
}

/// Who has the newest state.
#[derive(Debug)]
pub(super) struct Told {
    /// It is known what that is.
    pub(super) is_known: bool,
    pub(super) file: bool,
    pub(super) agent: bool,
    pub(super) hook: bool,
    /// There is no connection to the agent any more.
    pub(super) hung_up: bool,
}

impl Exit {
    /// Handles SIGTERM or SIGINT. A second one never extends the deadline. Returns whether it is the first reason.
    pub(super) fn handle_signal(&mut self, signal: i32, now: Instant) -> bool {
        let reason = ExitReason::Signal(signal);
        if let Some(pending) = &mut self.0 {
            pending.reason = reason;
            pending.deadline = pending.deadline.min(now + SHUTDOWN_GRACE);
            return false;
        }
        self.0 = Some(Pending { reason, deadline: now + SHUTDOWN_GRACE, queue_read: false });
        true
    }

    /// Handles that there is nothing left to watch, or nobody to run programs. Returns whether it is the first reason.
    pub(super) fn handle_loss(&mut self, reason: ExitReason, now: Instant) -> bool {
        let is_first = self.0.is_none();
        // In a namespace that has gone there is nothing that matters.
        let queue_read = reason == ExitReason::NamespaceGone;
        self.0.get_or_insert(Pending { reason, deadline: now + LOSS_GRACE, queue_read });
        is_first
    }

    pub(super) fn handle_queue_empty(&mut self) {
        if let Some(pending) = &mut self.0 {
            pending.queue_read = true;
        }
    }

    /// Whether an exit has been asked for.
    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the hook may still be run: else it would be killed at once.
    pub(super) fn leaves_time_for_the_hook(&self) -> bool {
        self.0.as_ref().is_none_or(|pending| pending.reason == ExitReason::NamespaceGone)
    }

    pub(super) fn next_action(&self, told: &Told, now: Instant) -> Option<Action> {
        let Pending { reason, deadline, queue_read } = *self.0.as_ref()?;
        let is_known = queue_read && told.is_known;
        let is_told = match reason {
            // What was so when the exit was asked for is reported. But whoever asks does not wait for a disk
            // that is full or an agent that is not there.
            ExitReason::Signal(_) => is_known,
            // This is news that should arrive.
            ExitReason::HelperGone(_) => is_known && told.file && told.agent,
            ExitReason::NamespaceGone => told.file && told.agent && told.hook,
        };
        (now >= deadline || (is_told && told.hung_up)).then_some(Action::Exit(reason))
    }

    /// At once, if the queue has yet to be read.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pending = self.0.as_ref()?;
        Some(if pending.queue_read { pending.deadline } else { Instant::ZERO })
    }
}
