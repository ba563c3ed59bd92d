//! conntrackd's commands, which run beside the reports and never delay them.

use super::Monitor;
use crate::errno::Errno;
use crate::monitor::conntrack::Conntrack;
use crate::monitor::{Action, CommandResult, Instant, LogEvent};

impl Monitor<'_> {
    /// Begins the next command, if there is one. While the state file is being written none is begun: a disk
    /// may hang, and the state be another when it is back.
    pub(super) fn run_command(&mut self) {
        if self.file.is_writing() {
            return;
        }
        let now = self.now;
        if let Some(command) = self.conntrack.as_mut().and_then(|conntrack| conntrack.begin(now)) {
            self.push(Action::RunCommand(command));
        }
    }

    /// When the next command is due.
    pub(super) fn command_deadline(&self) -> Option<Instant> {
        let deadline = self.conntrack.as_ref().and_then(Conntrack::deadline);
        deadline.filter(|_| !self.file.is_writing())
    }

    pub(super) fn on_command_ended(&mut self, end: CommandResult) {
        let unconfigured = end == CommandResult::NotConfigured(Errno::NOT_FOUND);
        let now = self.now;
        if unconfigured && self.conntrack.as_mut().is_some_and(|c| c.on_unconfigured(now)) {
            self.log_limited(|_| LogEvent::ConntrackdUnconfigured);
            return;
        }
        let ended = self.conntrack.as_mut().and_then(Conntrack::end);
        let Some((command, synced)) = ended else { return };
        self.counters.commands += 1;
        if end != CommandResult::Exited(0) {
            self.counters.command_failures += 1;
            self.push(Action::Log(LogEvent::CommandFailed { command, end }));
        }
        if let Some(state) = synced {
            self.push(Action::Log(LogEvent::Synced(state)));
        }
    }

    pub(super) fn on_helper_restarted(&mut self) {
        self.log_limited(|count| LogEvent::HelperRestarted { count });
    }

    pub(super) fn on_helper_gone(&mut self) {
        // Not to be asked again, so said once.
        if self.conntrack.take().is_some() {
            self.push(Action::Log(LogEvent::HelperGone));
        }
    }
}
