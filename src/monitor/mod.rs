//! Every decision, and nothing else: no file descriptor, no clock, no system call.
//!
//! [`Monitor::on`] takes one [`Input`], which is what happened, and the time, and returns the [`Action`]s
//! to be done about it. A loop, such as that in [`crate::daemon`], executes them.
//!
//! # What the loop guarantees
//!
//! - **Order.** Actions are executed in the order in which they are returned. Netlink inputs come in the
//!   order in which the socket gives them, [`Input::Overrun`] in the place where it was read.
//! - **Re-entry.** What comes of an action at once is the next input, before the next action: a write of a
//!   file, a frame sent, an attempt to tell the agent that fails to connect. So `on` is called again
//!   amid its own actions, but never while it runs. [`Action::ReadReplies`] brings an input for each reply and
//!   then [`Input::RepliesRead`].
//! - **Time.** `now` never goes backwards, and is read when the input is; a disk that hangs counts.
//! - **Ticks.** At [`Monitor::deadline`], asked for after each input, an [`Input::Tick`] is due. It promises
//!   that all the kernel had to say by `now` has been given: the netlink socket was empty at that time, by a
//!   read or by poll(2). Until it is, the loop reads on. A tick may be given whenever the queue is empty.
//! - **Sources.** Whatever is not asked for is given as it comes: signals, frames (unless
//!   [`Action::ReadFrames`] has said not to), mounts, ends of commands and of the hook.
//! - **The end.** After [`Action::Exit`] the loop ends, as soon as it has handled what was ready.
//!
//! # What the loop may expect
//!
//! - No more than one dump, one attempt to tell the agent, one command and one run of the hook at a time.
//! - No answer is longer than [`Actions`] has room for; were it so, `on` would panic rather than forget one.
//! - `on` neither allocates nor waits. Any input is legal at any time: an outcome nobody waits for is nothing.
//! - After a tick the deadline lies ahead of it, unless a frame or a line was due, of which each tick has one.
//! - No deadline: nothing is to be done until something happens.
//!
//! # The steps of `on`
//!
//! The input first changes what is known; then each step looks whether that leaves it something to do, which
//! depends on what is known and not on the input. So no combination of events needs code of its own. They
//! stand in this order:
//!
//! 1. Give up what is overdue: after the input, which may be what was awaited, and only when all that has come
//!    has been read, which a tick or `RepliesRead` tells.
//! 2. Set the address filter: before the dump that shows what the filter has kept back.
//! 3. Request a dump, at a tick: after an overrun the kernel drops all events until the queue is empty, and a
//!    dump requested before would leave a gap. Before the report: SIGHUP has it wait for what is to be listed.
//! 4. Report a new state to the file, which the agent, conntrackd and the hook wait for: a disk may hang.
//! 5. Tell whoever waits for the state file, then the agent, then run conntrackd's next command, then the hook, if
//!    no write is under way. Each has a process of its own, so none delays another.
//! 6. Watch claims, read frames again, let announcements begin or cease: these may not delay a report.
//! 7. Log a claim, send a frame, at a tick: both want it to be certain that the VIP is here. One of each, so
//!    that nothing else has to wait.
//! 8. Tell the service manager, which is for people to read; and, at a tick, that the loop works.
//! 9. Write the metrics, if the state file is not being written: nothing waits for them, and a disk may hang.
//! 10. Check the namespace, at a tick: what comes of any other step may be an input amid this answer, and news in
//!     the midst would leave the rest of it outdated.
//! 11. Exit, when everything that has to come before it has begun.
//!
//! Diagrams: the VIP in `vip`, dumps in `resync.rs`, the agent in `outbox.rs`, the hook in `hook.rs`.

#![forbid(unsafe_code)]

mod announce;
mod backoff;
mod conntrack;
mod hook;
mod input_action;
mod links;
mod log_event;
mod metrics;
mod namespace;
mod outbox;
mod outcome;
mod rate_limit;
mod resync;
mod service_manager;
mod split_brain;
mod state_file;
mod state_machine;
mod throttle;
mod vip;

pub use announce::{AddressKey, AnnounceTiming, Announcement, FrameKind, Local, Tables};
pub use backoff::Backoff;
pub use input_action::{Action, Actions, Control, Counters, ExitReason, HelperNews, Input, Status};
pub use log_event::LogEvent;
pub use namespace::NamespaceCheck;
pub use outbox::Renotify;
pub use outcome::{Failure, Outcome};
pub use resync::{Dump, DumpResult};
pub use service_manager::{ManagerNotice, Summary};
pub use smoltcp::time::{Duration, Instant};
pub use state_machine::{Monitor, MonitorConfig};

pub use crate::wire::helper::{
    CommandResult, HelperKind, HookCall, HookState, Request, SyncCommand,
};

/// Whether this router is the active one: what keepalived says by adding or removing the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The VIP is on the watched interface.
    Active,
    /// It is not.
    Backup,
}

/// The word by which the agent and the state file know [`State::Active`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveWord {
    /// `master`, as the first generation of Neutron's monitor.
    #[default]
    Master,
    /// `primary`, as the later ones.
    Primary,
}

impl State {
    /// The state as a word.
    #[must_use]
    pub fn word(self, active: ActiveWord) -> &'static str {
        match (self, active) {
            (Self::Active, ActiveWord::Master) => "master",
            (Self::Active, ActiveWord::Primary) => "primary",
            (Self::Backup, _) => "backup",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_words_that_agents_know() {
        let words = |active| [State::Active, State::Backup].map(|state| state.word(active));
        assert_eq!(words(ActiveWord::Master), ["master", "backup"]);
        assert_eq!(words(ActiveWord::Primary), ["primary", "backup"]);
    }
}
