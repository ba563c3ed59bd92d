//! Every decision, and nothing else: no file descriptor, no clock, no system call.
//!
//! Whoever runs it, such as [`crate::daemon`], hands in what happened, and asks what to do until there is nothing:
//!
//! ```ignore
//! monitor.handle(&input, now);
//! while let Some(action) = monitor.next_action(now) {
//!     if let Some(result) = execute(&action) {
//!         now = clock::now();
//!         monitor.handle(&result, now);
//!     }
//! }
//! ```
//!
//! What the caller guarantees:
//!
//! - Each action is executed at once, and its result, if it has one, is handed in before the next is asked for: of a
//!   write, a frame, a connection or a request that fails, a look at the namespace.
//! - `now` never goes backwards. It is the time of the last input; a disk that hangs counts.
//! - Netlink inputs come in the order in which the socket gives them, [`Input::Overrun`] in the place where it was
//!   read. [`Input::QueueEmpty`] says that there was nothing more at `now`, by a read or by poll(2). It may be said
//!   whenever that is so, and is due at [`Monitor::deadline`]. What must not be done before the kernel's latest news
//!   have been read is done then, and as long as neither time has passed nor anything been read since: requests of
//!   dumps (after an overrun the kernel drops all events until the queue is empty), giving up a dump, frames and
//!   lines for which the VIP has to be here, the exit.
//! - Everything else comes as it happens: signals, frames when they are read, mounts, replies, ends of programs.
//! - After [`Action::Exit`] nothing is asked for any more.
//!
//! What the caller may expect:
//!
//! - `handle` changes only what is known, `next_action` only what is under way: neither allocates nor waits, and after a
//!   bounded number of actions there is none. Any input is legal at any time: a result nobody waits for is nothing.
//! - At most one dump, one attempt to tell the agent, one command and one run of the hook is under way.
//! - The order of the duties is that of `Monitor::next_action` in `machine.rs`: the state file comes before the agent, and
//!   nothing that only people read before what machines wait for.
//! - Once `QueueEmpty` has been handled, or again if that has led to something, the deadline lies ahead, unless a frame
//!   was sent: one each time. No deadline: nothing is to be done until something happens.
//!
//! Each feature is a file with its state, its deadline and its counters. There are diagrams in `vip.rs`, `agent.rs` and
//! `announce`.

#![forbid(unsafe_code)]

mod agent;
mod announce;
mod backoff;
mod conntrack;
mod elsewhere;
mod exit;
mod hook;
mod input_action;
mod inputs;
mod journal;
mod machine;
mod namespace;
mod resync;
mod service_manager;
mod split_brain;
mod state_file;
mod status;
mod vip;

pub use agent::{Failure, Outcome, Renotify};
pub use announce::{AddressKey, AnnounceTiming, Announcement, FrameKind, Tables};
pub use input_action::{Action, Control, ExitReason, HelperNews, Input};
pub use journal::LogEvent;
pub use machine::{Monitor, MonitorConfig};
pub use namespace::NamespaceCheck;
pub use resync::{Dump, DumpResult};
pub use service_manager::ManagerNotice;
pub use smoltcp::time::{Duration, Instant};
pub use split_brain::Probe;
pub use status::{Counters, Status, Trouble, Troubles};
pub use vip::Cause;

pub use crate::wire::helper::{CommandResult, HelperKind, HookState, Request, SyncCommand};

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
