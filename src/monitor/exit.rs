//! The exit: in time, and if possible after the reports that its reason requires.

use super::{Action, Duration, ExitReason, Instant};

/// How long requests in progress may delay the exit after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How long pending reports may delay the exit after a loss of the namespace or a helper.
const LOSS_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Exit(Option<Pending>);

#[derive(Debug)]
struct Pending {
    reason: ExitReason,
    deadline: Instant,
    /// The netlink queue has been read to its end since the exit was requested.
    queue_read: bool,
}

impl Exit {
    /// Handles a reason to exit. Returns whether it is the first.
    pub(super) fn handle(&mut self, reason: ExitReason, now: Instant) -> bool {
        let is_signal = matches!(reason, ExitReason::Signal(_));
        let deadline = now + if is_signal { SHUTDOWN_GRACE } else { LOSS_GRACE };
        let Some(pending) = &mut self.0 else {
            // No event of a deleted namespace matters.
            let queue_read = reason == ExitReason::NamespaceGone;
            self.0 = Some(Pending { reason, deadline, queue_read });
            return true;
        };
        if is_signal {
            // A second signal never extends the deadline.
            (pending.reason, pending.deadline) = (reason, pending.deadline.min(deadline));
        }
        false
    }

    pub(super) fn handle_queue_empty(&mut self) {
        if let Some(pending) = &mut self.0 {
            pending.queue_read = true;
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn reason(&self) -> Option<ExitReason> {
        self.0.as_ref().map(|pending| pending.reason)
    }

    /// Returns whether the hook may be run: before most exits it would be killed at once.
    pub(super) fn allows_hook(&self) -> bool {
        self.reason().is_none_or(|reason| reason == ExitReason::NamespaceGone)
    }

    /// Returns the exit once it is due. `is_reported`: the reports that its reason requires are done.
    pub(super) fn next_action(&self, is_reported: bool, now: Instant) -> Option<Action> {
        let Pending { reason, deadline, queue_read } = *self.0.as_ref()?;
        (now >= deadline || (queue_read && is_reported)).then_some(Action::Exit(reason))
    }

    /// Returns the time of the exit, or a past time if the queue has to be read first.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pending = self.0.as_ref()?;
        Some(if pending.queue_read { pending.deadline } else { Instant::ZERO })
    }
}
