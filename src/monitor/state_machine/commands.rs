//! conntrackd's commands and the hook, which run beside the reports and never delay them.

use super::Monitor;
use crate::errno::Errno;
use crate::monitor::conntrack::Conntrack;
use crate::monitor::hook::Hook;
use crate::monitor::{
    Action, CommandResult, ExitReason, HelperKind, HelperNews, Instant, LogEvent, Request,
};

impl Monitor<'_> {
    pub(super) fn on_helper(&mut self, helper: HelperKind, news: HelperNews) {
        match (news, helper) {
            (HelperNews::Ended(end), HelperKind::Conntrackd) => self.on_command_ended(end),
            (HelperNews::Ended(end), HelperKind::Hook) => self.on_hook_ended(end),
            (HelperNews::Restarted, _) => {
                self.log_limited(&|count| LogEvent::HelperRestarted { helper, count });
            }
            (HelperNews::Gone, _) => {
                // Not to be asked again, so said once.
                let is_news = match helper {
                    HelperKind::Conntrackd => self.conntrack.take().is_some(),
                    HelperKind::Hook => self.hook.take().is_some(),
                };
                if is_news {
                    self.push(Action::Log(LogEvent::HelperGone(helper)));
                }
            }
        }
    }

    /// Begins the next command, if there is one. While the state file is being written none is begun: a disk
    /// may hang, and the state be another when it is back.
    pub(super) fn run_command(&mut self) {
        if self.file.is_writing() {
            return;
        }
        let now = self.now;
        if let Some(command) = self.conntrack.as_mut().and_then(|conntrack| conntrack.begin(now)) {
            self.push(Action::Run(Request::Sync(command)));
        }
    }

    /// When the next command is due.
    pub(super) fn command_deadline(&self) -> Option<Instant> {
        let deadline = self.conntrack.as_ref().and_then(Conntrack::deadline);
        deadline.filter(|_| !self.file.is_writing())
    }

    fn on_command_ended(&mut self, end: CommandResult) {
        let unconfigured = end == CommandResult::NotConfigured(Errno::NOT_FOUND);
        let now = self.now;
        if unconfigured && self.conntrack.as_mut().is_some_and(|c| c.on_unconfigured(now)) {
            self.log_limited(&|_| LogEvent::ConntrackdUnconfigured);
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

    /// Runs the hook, if it is time for that. As for commands, not while the state file is being written; nor when
    /// it would be killed at once, as the daemon is about to leave.
    pub(super) fn run_hook(&mut self) {
        if self.may_run_hook()
            && let Some(call) = self.hook.as_mut().and_then(|hook| hook.begin(self.now))
        {
            self.push(Action::Run(Request::Hook(call)));
        }
    }

    /// When to run the hook.
    pub(super) fn hook_deadline(&self) -> Option<Instant> {
        let deadline = self.hook.as_ref().and_then(Hook::deadline);
        deadline.filter(|_| self.may_run_hook())
    }

    fn may_run_hook(&self) -> bool {
        let exit = self.exit.as_ref().map(|exit| exit.reason);
        !self.file.is_writing() && !matches!(exit, Some(ExitReason::Signal(_)))
    }

    fn on_hook_ended(&mut self, end: CommandResult) {
        let (succeeded, now) = (end == CommandResult::Exited(0), self.now);
        let ended = self.hook.as_mut().and_then(|hook| hook.end(succeeded, now));
        let Some((state, failures)) = ended else { return };
        self.counters.hook_runs += 1;
        if succeeded {
            self.push(Action::Log(LogEvent::HookSucceeded { state, failures }));
        } else {
            self.counters.hook_failures += 1;
            self.log_limited(&|count| LogEvent::HookFailed { state, end, count });
        }
    }

    /// Whether what the hook prints is to be logged: of runs that repeat a failed one, once a minute.
    pub fn logs_hook_output(&self) -> bool {
        self.hook.as_ref().is_some_and(Hook::prints)
    }
}
