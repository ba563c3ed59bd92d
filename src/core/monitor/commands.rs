//! conntrackd's commands, which run beside the reports and never delay them.

use super::{Monitor, count};
use crate::core::conntrack::Conntrack;
use crate::core::{Action, CommandEnd, Note};
use crate::errno::Errno;

impl Monitor<'_> {
    /// Begins the next command, if there is one. While the state file is being written none is begun: a disk
    /// may hang, and the state be another when it is back.
    pub(super) fn run_command(&mut self) {
        if self.is_writing() {
            return;
        }
        let now = self.now;
        if let Some(command) = self.conntrack.as_mut().and_then(|conntrack| conntrack.begin(now)) {
            self.push(Action::Run(command));
        }
    }

    pub(super) fn on_command_ended(&mut self, end: CommandEnd) {
        let unconfigured = end == CommandEnd::NotConfigured(Errno::NOT_FOUND);
        let now = self.now;
        if unconfigured && self.conntrack.as_mut().is_some_and(|c| c.on_unconfigured(now)) {
            if self.repeats.unconfigured.occurred(now).is_some() {
                self.push(Action::Log(Note::ConntrackdUnconfigured));
            }
            return;
        }
        let ended = self.conntrack.as_mut().and_then(Conntrack::end);
        let Some((command, synced)) = ended else { return };
        count(&mut self.status.commands);
        if end != CommandEnd::Exited(0) {
            count(&mut self.status.command_failures);
            self.push(Action::Log(Note::CommandFailed { command, end }));
        }
        if let Some(state) = synced {
            self.push(Action::Log(Note::Synced(state)));
        }
    }

    pub(super) fn on_conntrackd_restarted(&mut self) {
        if let Some(count) = self.repeats.conntrackd_restarted.occurred(self.now) {
            self.push(Action::Log(Note::ConntrackdRestarted { count }));
        }
    }

    pub(super) fn on_conntrackd_gone(&mut self) {
        // Not to be asked again, so said once.
        if self.conntrack.take().is_some() {
            self.push(Action::Log(Note::ConntrackdGone));
        }
    }
}
