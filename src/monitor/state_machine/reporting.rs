//! Reporting the state: the file first, then the agent and the hook.

use super::Monitor;
use crate::errno::Errno;
use crate::monitor::{Action, Failure, LogEvent, Outcome, State};

impl Monitor<'_> {
    pub(super) fn on_state_file(&mut self, result: Result<State, Errno>) {
        match result {
            Ok(state) => {
                self.counters.writes += 1;
                self.file.on_written();
                self.push(Action::Log(LogEvent::Wrote(state)));
            }
            Err(errno) => {
                self.counters.write_failures += 1;
                self.file.on_failed(self.now);
                self.log_limited(&|count| LogEvent::NotWritten { errno, count });
            }
        }
    }

    /// Reports the state, if it is new: the file first, then the agent and the hook.
    pub(super) fn report(&mut self) {
        let again = self.report_again && self.resync.is_settled();
        if let (Some(hook), Some(state)) = (&mut self.hook, self.vip.hook_state()) {
            hook.post(state, again, self.now);
        }
        match self.vip.state() {
            Some(state) if again || self.reported != Some(state) => {
                self.report_again &= !again;
                let last = self.reported.replace(state);
                if last.is_none() {
                    self.push(Action::Log(LogEvent::Initial(state)));
                }
                if last != Some(state) {
                    self.counters.transitions += 1;
                    self.changed_at = Some(self.now);
                    if let Some(conntrack) = &mut self.conntrack {
                        conntrack.post(state);
                    }
                }
                self.write(state);
                self.request_metrics();
                if self.notify_agent {
                    self.outbox.post(state, self.now);
                }
            }
            _ => {
                if self.file.deadline().is_some_and(|at| self.now >= at)
                    && let Some(state) = self.reported
                {
                    self.write(state);
                }
            }
        }
    }

    fn write(&mut self, state: State) {
        self.file.begin();
        self.push(Action::WriteState(state));
    }

    pub(super) fn on_agent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Delivered => {
                let Some((state, failures)) = self.outbox.on_delivered(self.now) else { return };
                self.counters.notifications += 1;
                self.push(Action::Log(LogEvent::Notified(state)));
                if failures > 0 {
                    self.push(Action::Log(LogEvent::AgentBack { failures }));
                }
            }
            Outcome::Closed => self.outbox.on_closed(),
            Outcome::Failed(failure) => self.on_agent_failure(failure),
        }
    }

    pub(super) fn on_agent_failure(&mut self, failure: Failure) {
        if !self.outbox.on_failed(failure, self.now) {
            return;
        }
        if let Some(failures) = self.counters.notification_failures.get_mut(failure.kind()) {
            *failures += 1;
        }
        self.log_limited(&|count| LogEvent::NotNotified { failure, count });
    }

    /// Tells the agent, if it is time for that. A disk may hang; so the file comes first, and the time for
    /// the reply begins when the request is sent.
    pub(super) fn notify(&mut self) {
        if self.file.is_writing() {
            return;
        }
        if let Some(state) = self.outbox.begin(self.now) {
            self.push(Action::Notify(state));
        }
    }
}
