//! The exit: in time, and if possible after the reports that its reason requires.

use super::{Action, Duration, ExitReason, HookState, Instant};

/// How long requests in progress may delay the exit after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How long the hook may delay the exit after a signal, unless a second one follows: procd and systemd kill the daemon
/// after ten seconds.
const HOOK_GRACE: Duration = Duration::from_secs(8);
/// How long pending reports may delay the exit after a loss of the namespace or a helper.
const LOSS_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Exit(Option<Pending>);

#[derive(Debug)]
struct Pending {
    reason: ExitReason,
    deadline: Instant,
    /// The deadline while the hook delays the exit.
    hook_deadline: Instant,
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
            let hook_deadline = if is_signal { now + HOOK_GRACE } else { deadline };
            self.0 = Some(Pending { reason, deadline, hook_deadline, queue_read });
            return true;
        };
        if is_signal {
            // A second signal never extends a deadline.
            let is_second = matches!(pending.reason, ExitReason::Signal(_));
            (pending.reason, pending.deadline) = (reason, pending.deadline.min(deadline));
            if is_second {
                pending.hook_deadline = pending.deadline;
            } else {
                // Events that precede the signal count.
                pending.queue_read = false;
            }
        }
        false
    }

    pub(super) fn handle_queue_empty(&mut self) {
        self.0.iter_mut().for_each(|pending| pending.queue_read = true);
    }

    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn reason(&self) -> Option<ExitReason> {
        self.0.as_ref().map(|pending| pending.reason)
    }

    /// Returns whether the hook may be run for a state: before most exits it would be killed at once. After a signal, as
    /// of a reboot, it undoes what it has done for MASTER.
    pub(super) fn allows_hook(&self, state: Option<HookState>) -> bool {
        match self.reason() {
            None | Some(ExitReason::NamespaceGone) => true,
            Some(ExitReason::Signal(_)) => state != Some(HookState::Master),
            Some(
                ExitReason::Superseded | ExitReason::HelperGone(_) | ExitReason::SourceFailed(_),
            ) => false,
        }
    }

    /// Returns the exit once it is due. `is_reported`: the reports that its reason requires are done. `waits`: the hook
    /// delays the exit.
    pub(super) fn next_action(
        &self,
        is_reported: bool,
        waits: bool,
        now: Instant,
    ) -> Option<Action> {
        let pending = self.0.as_ref()?;
        let is_done = pending.queue_read && is_reported && !waits;
        (now >= pending.by(waits) || is_done).then_some(Action::Exit(pending.reason))
    }

    /// Returns the time of the exit, or a past time if the queue has to be read first.
    pub(super) fn deadline(&self, waits: bool) -> Option<Instant> {
        let pending = self.0.as_ref()?;
        Some(if pending.queue_read { pending.by(waits) } else { Instant::ZERO })
    }
}

impl Pending {
    fn by(&self, waits: bool) -> Instant {
        if waits { self.hook_deadline } else { self.deadline }
    }
}
