//! Reporting the state: the file first, then the agent.

use super::{Monitor, count};
use crate::errno::Errno;
use crate::monitor::{Action, Failure, LogEvent, Outcome, State};

impl Monitor<'_> {
    pub(super) fn on_state_file(&mut self, result: Result<State, Errno>) {
        match result {
            Ok(state) => {
                count(&mut self.status.writes);
                self.unwritten = false;
                self.rewrite_backoff.reset();
                self.push(Action::Log(LogEvent::Wrote(state)));
                if !core::mem::replace(&mut self.ready, true) {
                    self.push(Action::Ready);
                }
            }
            Err(errno) => {
                count(&mut self.status.write_failures);
                self.rewrite_at = Some(self.rewrite_backoff.after_failure(self.now));
                if let Some(count) = self.rate_limits.not_written.should_log(self.now) {
                    self.push(Action::Log(LogEvent::NotWritten { errno, count }));
                }
            }
        }
    }

    /// Reports the state, if it is new: the file first, then the agent.
    pub(super) fn report(&mut self) {
        let again = self.report_again && self.resync.is_settled();
        match self.vip.state() {
            Some(state) if again || self.status.state != Some(state) => {
                self.report_again &= !again;
                let last = self.status.state.replace(state);
                if last.is_none() {
                    self.push(Action::Log(LogEvent::Initial(state)));
                }
                if last != Some(state) {
                    count(&mut self.status.transitions);
                    if let Some(conntrack) = &mut self.conntrack {
                        conntrack.post(state);
                    }
                }
                self.write(state);
                self.outbox.post(state, self.now);
            }
            _ => {
                if self.rewrite_at.is_some_and(|at| self.now >= at)
                    && let Some(state) = self.status.state
                {
                    self.write(state);
                }
            }
        }
    }

    pub(super) fn write(&mut self, state: State) {
        self.unwritten = true;
        self.rewrite_at = None;
        self.push(Action::WriteState(state));
    }

    pub(super) fn on_agent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Delivered => {
                let Some((state, failures)) = self.outbox.on_delivered(self.now) else { return };
                count(&mut self.status.notifications);
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
        count(&mut self.status.notification_failures);
        if let Some(count) = self.rate_limits.not_notified.should_log(&failure, self.now) {
            self.push(Action::Log(LogEvent::NotNotified { failure, count }));
        }
    }

    /// Whether the outcome of a write is yet to come.
    pub(super) fn is_writing(&self) -> bool {
        self.unwritten && self.rewrite_at.is_none()
    }

    /// Tells the agent, if it is time for that. A disk may hang; so the file comes first, and the time for
    /// the reply begins when the request is sent.
    pub(super) fn notify(&mut self) {
        if self.is_writing() {
            return;
        }
        if let Some(state) = self.outbox.begin(self.now) {
            self.push(Action::Notify(state));
        }
    }
}
