//! The end: in time, and not before what has to be told has been.

use super::Monitor;
use crate::monitor::hook::Hook;
use crate::monitor::namespace::NamespaceLook;
use crate::monitor::{
    Action, Duration, ExitReason, Instant, LogEvent, ManagerNotice, NamespaceCheck,
};

/// How long what is under way may delay the exit after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How long to try to tell that the namespace has gone.
const NAMESPACE_GONE_GRACE: Duration = Duration::from_secs(5);

/// An exit that is due as soon as what has to be told has been, and at the latest at its deadline.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) reason: ExitReason,
    deadline: Instant,
    /// What the kernel had told when the exit was asked for has been read.
    queue_read: bool,
}

impl Monitor<'_> {
    /// Handles SIGTERM or SIGINT. A second one never extends the deadline.
    pub(super) fn on_exit_requested(&mut self, signal: i32) {
        let mut deadline = self.now + SHUTDOWN_GRACE;
        let mut queue_read = false;
        if let Some(earlier) = &self.exit {
            deadline = deadline.min(earlier.deadline);
            queue_read = earlier.queue_read;
        } else {
            self.tell_manager(ManagerNotice::Stopping);
        }
        self.exit = Some(Exit { reason: ExitReason::Signal(signal), deadline, queue_read });
    }

    pub(super) fn on_namespace_gone(&mut self) {
        if self.exit.is_none() {
            let deadline = self.now + NAMESPACE_GONE_GRACE;
            self.exit =
                Some(Exit { reason: ExitReason::NamespaceGone, deadline, queue_read: true });
            self.namespace = NamespaceLook::new(NamespaceCheck::Never);
            self.vip.mark_unreachable();
            self.push(Action::Log(LogEvent::NamespaceGone));
            self.tell_manager(ManagerNotice::Stopping);
        }
    }

    pub(super) fn try_exit(&mut self, tick: bool) {
        let Some(exit) = &mut self.exit else { return };
        exit.queue_read |= tick;
        let Exit { reason, deadline, queue_read } = *exit;
        let is_told = match reason {
            // What was so when the exit was asked for is reported. But whoever asks does not wait for a disk
            // that is full or an agent that is not there.
            ExitReason::Signal(_) => {
                queue_read && !self.resync.is_state_in_doubt() && !self.file.is_writing()
            }
            // This is news that should arrive.
            ExitReason::NamespaceGone => {
                self.file.is_written()
                    && self.outbox.undelivered().is_none()
                    && self.hook.as_ref().is_none_or(Hook::is_done)
            }
        };
        if self.now >= deadline || (is_told && !self.outbox.is_connected()) {
            self.push(Action::Exit(reason));
        }
    }

    /// When to exit at the latest; at once, if the queue has yet to be read.
    pub(super) fn exit_deadline(&self) -> Option<Instant> {
        let exit = self.exit.as_ref()?;
        Some(if exit.queue_read { exit.deadline } else { self.now })
    }

    pub(super) fn check_namespace(&mut self) {
        if self.namespace.begin(self.now) {
            self.push(Action::CheckNamespace);
        }
    }
}
