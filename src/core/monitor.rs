//! The monitor as a whole: inputs in, actions out.

use super::backoff::Backoff;
use super::outbox::Outbox;
use super::repeat::Repeat;
use super::resync::Resync;
use super::vip::{Interface, Vip};
use super::{
    Action, Actions, DumpEnd, Duration, Failure, Input, Instant, MAX_ACTIONS, Note, Outcome,
    Request, Stage, State, Status,
};
use crate::errno::Errno;
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Body;

/// How long a request in flight may delay the end of the daemon.
const LEAVE_TAKING: Duration = Duration::from_secs(1);

/// The state machine.
#[derive(Debug)]
pub struct Monitor {
    now: Instant,
    actions: Actions,
    vip: Vip,
    resync: Resync,
    queue_empty: bool,
    /// Report at the end of the dump even if nothing has changed.
    report_again: bool,
    ready: bool,
    /// When to try the state file again, after a failure.
    rewrite_at: Option<Instant>,
    rewrite_backoff: Backoff,
    outbox: Outbox,
    leave_by: Option<Instant>,
    status: Status,
    repeats: Repeats,
}

#[derive(Debug, Default)]
struct Repeats {
    overrun: Repeat,
    unreadable: Repeat,
    dump_failed: [Repeat; DumpEnd::KINDS],
    foreign_sender: Repeat,
    not_written: Repeat,
    not_notified: [Repeat; Failure::KINDS],
}

impl Monitor {
    /// Watches the interface of this name for this address. `seed` should differ between processes.
    ///
    /// It begins to act at the first [`Input::QueueEmpty`].
    #[must_use]
    pub fn new(interface: InterfaceName, vip: Cidr, seed: u32) -> Self {
        Self {
            now: Instant::ZERO,
            actions: Actions::new(),
            vip: Vip::new(interface, vip),
            resync: Resync::new(seed),
            queue_empty: false,
            report_again: false,
            ready: false,
            rewrite_at: None,
            rewrite_backoff: Backoff::new(seed),
            outbox: Outbox::new(seed),
            leave_by: None,
            status: Status::default(),
            repeats: Repeats::default(),
        }
    }

    /// Takes what happened at `now`, which never lies before an earlier one, and tells what to do.
    pub fn on(&mut self, input: &Input, now: Instant) -> Actions {
        self.now = now;
        match input {
            Input::Kernel(body) => self.on_kernel(body),
            Input::DumpEnded(end) => self.on_dump_ended(*end),
            Input::Overrun => self.on_overrun(),
            Input::Unreadable => self.on_unreadable(),
            Input::ForeignSender(port) => self.on_foreign_sender(*port),
            Input::QueueEmpty => self.queue_empty = true,
            Input::StateFile(result) => self.on_state_file(*result),
            Input::Agent(outcome) => self.on_agent(*outcome),
            Input::Request(request) => self.on_request(*request),
        }
        self.give_up_what_is_overdue();
        self.begin_dump();
        self.report();
        self.notify();
        self.leave();
        core::mem::take(&mut self.actions)
    }

    /// When to read the queue again, be there something in it or not. None: not before something
    /// happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        [self.resync.deadline(), self.rewrite_at, self.outbox.deadline(), self.leave_by]
            .into_iter()
            .flatten()
            .min()
    }

    fn push(&mut self, action: Action) {
        let pushed = self.actions.push(action);
        debug_assert!(pushed.is_ok(), "one input brings about at most {MAX_ACTIONS} actions");
    }

    fn on_kernel(&mut self, body: &Body) {
        self.queue_empty = false;
        count(&mut self.status.events);
        self.update_vip(|vip| match body {
            Body::NewAddress(address) => vip.on_address(address),
            Body::DelAddress(address) => vip.on_address_gone(address),
            Body::NewLink(link) => vip.on_link(link),
            Body::DelLink(link) => vip.on_link_gone(link.ifindex),
            Body::Done(_) | Body::Error(_) | Body::Other => {}
        });
    }

    fn on_dump_ended(&mut self, end: DumpEnd) {
        let Some((stage, end)) = self.resync.end(end, self.now) else { return };
        match (end, stage) {
            (DumpEnd::Complete, Stage::Links) => {
                self.update_vip(Vip::links_end);
                self.resync.want(Stage::Addresses);
            }
            (DumpEnd::Complete, Stage::Addresses) => self.vip.addresses_end(),
            _ => {
                count(&mut self.status.dump_failures);
                let repeat = self.repeats.dump_failed.get_mut(end.kind());
                if let Some(count) = repeat.and_then(|repeat| repeat.occurred(self.now)) {
                    self.push(Action::Log(Note::DumpFailed { stage, end, count }));
                }
            }
        }
    }

    fn on_overrun(&mut self) {
        self.queue_empty = false;
        count(&mut self.status.overruns);
        self.resync.want(Stage::Links);
        if let Some(count) = self.repeats.overrun.occurred(self.now) {
            self.push(Action::Log(Note::Overrun { count }));
        }
    }

    fn on_unreadable(&mut self) {
        self.queue_empty = false;
        count(&mut self.status.unreadable);
        self.resync.spoil();
        if let Some(count) = self.repeats.unreadable.occurred(self.now) {
            self.push(Action::Log(Note::Unreadable { count }));
        }
    }

    fn on_foreign_sender(&mut self, port: u32) {
        count(&mut self.status.foreign);
        if let Some(count) = self.repeats.foreign_sender.occurred(self.now) {
            self.push(Action::Log(Note::ForeignSender { port, count }));
        }
    }

    fn on_state_file(&mut self, result: Result<State, Errno>) {
        match result {
            Ok(state) => {
                count(&mut self.status.writes);
                self.rewrite_backoff.reset();
                self.push(Action::Log(Note::Wrote(state)));
                if !core::mem::replace(&mut self.ready, true) {
                    self.push(Action::Ready);
                }
            }
            Err(errno) => {
                count(&mut self.status.write_failures);
                self.rewrite_at = Some(self.rewrite_backoff.after_failure(self.now));
                if let Some(count) = self.repeats.not_written.occurred(self.now) {
                    self.push(Action::Log(Note::NotWritten { errno, count }));
                }
            }
        }
    }

    fn on_agent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Delivered => {
                let Some((state, failures)) = self.outbox.delivered() else { return };
                count(&mut self.status.notifications);
                self.push(Action::Log(Note::Notified(state)));
                if failures > 0 {
                    self.push(Action::Log(Note::AgentBack { failures }));
                }
            }
            Outcome::Closed => {
                self.outbox.closed(self.now);
            }
            Outcome::Failed(failure) => self.on_agent_failure(failure),
        }
    }

    fn on_agent_failure(&mut self, failure: Failure) {
        if !self.outbox.closed(self.now) {
            return;
        }
        count(&mut self.status.notification_failures);
        let repeat = self.repeats.not_notified.get_mut(failure.kind());
        if let Some(count) = repeat.and_then(|repeat| repeat.occurred(self.now)) {
            self.push(Action::Log(Note::NotNotified { failure, count }));
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Leave => self.leave_by = Some(self.now + LEAVE_TAKING),
            Request::Reload => {
                self.push(Action::ReopenLog);
                self.push(Action::Log(Note::Reloading));
                self.resync.want(Stage::Links);
                self.report_again = true;
            }
            Request::Status => {
                let status = Status {
                    ifindex: self.vip.ifindex(),
                    undelivered: self.outbox.pending(),
                    ..self.status
                };
                self.push(Action::LogStatus(status));
            }
        }
    }

    /// Lets the VIP take something in, and follows its interface.
    fn update_vip(&mut self, update: impl FnOnce(&mut Vip)) {
        let before = self.vip.interface();
        update(&mut self.vip);
        let after = self.vip.interface();
        if after == before {
            return;
        }
        match after {
            Interface::At(ifindex) => {
                self.resync.want(Stage::Addresses);
                self.push(Action::Log(Note::InterfaceFound { ifindex }));
            }
            Interface::Absent => self.push(Action::Log(Note::InterfaceMissing)),
            Interface::Unknown => {}
        }
    }

    fn give_up_what_is_overdue(&mut self) {
        if self.resync.is_overdue(self.now) {
            self.on_dump_ended(DumpEnd::TimedOut);
        }
        if self.outbox.is_overdue(self.now) {
            self.push(Action::HangUp);
            self.on_agent_failure(Failure::TimedOut);
        }
    }

    /// Reports the state, if it is new: the file first, then the agent.
    fn report(&mut self) {
        let again = self.report_again && self.resync.is_settled();
        match self.vip.state() {
            Some(state) if again || self.status.state != Some(state) => {
                self.report_again &= !again;
                let last = self.status.state.replace(state);
                if last.is_none() {
                    self.push(Action::Log(Note::Initial(state)));
                }
                if last != Some(state) {
                    count(&mut self.status.transitions);
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

    fn write(&mut self, state: State) {
        self.rewrite_at = None;
        self.push(Action::WriteState(state));
    }

    fn begin_dump(&mut self) {
        if !self.queue_empty {
            return;
        }
        let Some(stage) = self.resync.begin(self.now) else { return };
        let action = match stage {
            Stage::Links => {
                self.vip.links_begin();
                Action::DumpLinks
            }
            Stage::Addresses => match self.vip.addresses_begin() {
                Some(ifindex) => Action::DumpAddresses(ifindex),
                // Without the interface there is nothing to ask for.
                None => return self.on_dump_ended(DumpEnd::Complete),
            },
        };
        count(&mut self.status.dumps);
        // What it lists is about to be queued.
        self.queue_empty = false;
        self.push(action);
    }

    fn notify(&mut self) {
        if let Some(state) = self.outbox.begin(self.now) {
            self.push(Action::Notify(state));
        }
    }

    fn leave(&mut self) {
        if let Some(leave_by) = self.leave_by
            && (self.now >= leave_by || !self.outbox.is_connected())
        {
            self.push(Action::Exit);
        }
    }
}

fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}
