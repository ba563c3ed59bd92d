//! The end: in time, and not before what has to be reported has been.

use super::{Action, Duration, ExitReason, Instant};

/// How long what is under way may delay the exit after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How long to try to report why nothing can be watched or run any more.
const LOSS_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Exit(Option<Pending>);

#[derive(Debug)]
struct Pending {
    reason: ExitReason,
    deadline: Instant,
    /// What the kernel had to say when the exit was asked for has been read.
    queue_read: bool,
}

impl Exit {
    /// Handles a reason to exit. Returns whether it is the first.
    pub(super) fn handle(&mut self, reason: ExitReason, now: Instant) -> bool {
        let is_signal = matches!(reason, ExitReason::Signal(_));
        let deadline = now + if is_signal { SHUTDOWN_GRACE } else { LOSS_GRACE };
        let Some(pending) = &mut self.0 else {
            // In a namespace that has gone there is nothing that matters.
            let queue_read = reason == ExitReason::NamespaceGone;
            self.0 = Some(Pending { reason, deadline, queue_read });
            return true;
        };
        if is_signal {
            // A second one never extends the deadline.
            (pending.reason, pending.deadline) = (reason, pending.deadline.min(deadline));
        }
        false
    }

    pub(super) fn handle_queue_empty(&mut self) {
        if let Some(pending) = &mut self.0 {
            pending.queue_read = true;
        }
    }

    pub(super) fn reason(&self) -> Option<ExitReason> {
        self.0.as_ref().map(|pending| pending.reason)
    }

    /// Whether the hook may still be run: else it would be killed at once.
    pub(super) fn leaves_time_for_the_hook(&self) -> bool {
        self.reason().is_none_or(|reason| reason == ExitReason::NamespaceGone)
    }

    /// `is_reported`: what this reason requires is done.
    pub(super) fn next_action(&self, is_reported: bool, now: Instant) -> Option<Action> {
        let Pending { reason, deadline, queue_read } = *self.0.as_ref()?;
        (now >= deadline || (queue_read && is_reported)).then_some(Action::Exit(reason))
    }

    /// At once, if the queue has yet to be read.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pending = self.0.as_ref()?;
        Some(if pending.queue_read { pending.deadline } else { Instant::ZERO })
    }
}
