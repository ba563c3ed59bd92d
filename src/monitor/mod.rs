//! The decisions: no file descriptor, no clock, no system call.
//!
//! The caller, such as [`crate::daemon`], passes inputs in and polls for actions:
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
//! There are four kinds of method:
//!
//! - handlers (`handle_*`; between features also `post`, `request_*`, `*_again`, `begin_*` and `end_*`) take an event and
//!   update the state;
//! - `next_action` polls a feature for its next action, and marks it as started;
//! - `deadline` returns when to poll again;
//! - getters change nothing.
//!
//! The caller guarantees:
//!
//! - It executes each action at once, and passes its result in before the next poll.
//! - `now` never goes backwards. It is the time of the last input, and includes time blocked on disk.
//! - Events, [`Input::Overrun`] included, arrive in the order of the socket. None is read while an answer is open.
//! - A frame ([`Input::Frame`]) follows the events that precede it, as they say whose MAC it has.
//! - [`Input::QueueEmpty`] means that a read or poll(2) found the queue of events empty at `now`. It is legal at any such
//!   time, and due at [`Monitor::deadline`]. Actions that need a current view wait for it: frames, probes, the exit, and
//!   after an overrun questions, as the kernel then drops all events until the queue is empty.
//! - After [`Action::Exit`] it polls no more.
//!
//! The monitor guarantees:
//!
//! - `handle` executes nothing. `next_action` first queues a new state for each consumer (in `report.rs`), and then
//!   polls the features by priority: the state file comes before the agent, and human output last.
//! - Neither allocates nor blocks, and the number of actions after an input is bounded. Any input is legal at any time;
//!   unexpected results are ignored.
//! - At most one question to the kernel, one request to the agent, one command and one run of the hook are in progress.
//! - After `QueueEmpty` and its actions the deadline is in the future, unless one of them asked or sent a frame. Without a
//!   deadline the monitor waits for the next event.
//!
//! Each feature is a file with its state and its deadline. `vip.rs`, `agent.rs` and `announce` have diagrams.

#![forbid(unsafe_code)]

mod agent;
mod announce;
mod backoff;
mod config;
mod conntrack;
mod delivery;
mod exit;
mod file_check;
mod hook;
mod input_action;
mod inputs;
mod interface;
mod journal;
mod keepalived;
mod machine;
mod namespace;
mod outcome;
mod places;
mod question;
mod report;
mod resync;
mod service_manager;
mod split_brain;
mod state_file;
mod status;
mod vip;
mod vrrp;

pub use agent::{AGENT_TIMEOUT, RENOTIFY, Renotify};
pub use announce::{AddressKey, AnnounceTiming, Announcement, FrameKind, Tables};
pub use config::{MonitorConfig, Predecessor};
pub use file_check::{FoundFiles, FoundStateFile};
pub use hook::HookTiming;
pub use input_action::{Action, Control, ExitReason, HelperNews, Input, Source};
pub use journal::{LimitedEvent, LogEvent};
pub use keepalived::Keepalived;
pub use machine::Monitor;
pub use namespace::NamespaceCheck;
pub use outcome::{Failure, Outcome};
pub use question::{Answer, Question};
pub use service_manager::ManagerNotice;
pub use smoltcp::time::{Duration, Instant};
pub use split_brain::{Ending, Probe};
pub use status::{Counters, Status, Trouble, Troubles};
pub use vip::Cause;

pub use crate::wire::helper::{CommandResult, HelperKind, HookRun, HookState, SyncCommand};

/// The role of this router, by which keepalived adds and removes the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The VIP is on the watched interface.
    Active,
    /// The VIP is not on the watched interface.
    Backup,
}

/// The word for [`State::Active`] in the state file and for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveWord {
    /// `master`, the word of the first generation of Neutron's monitor.
    Master,
    /// `primary`, the word of the later generations.
    Primary,
}

impl State {
    /// Returns the state that this one changes to.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Active => Self::Backup,
            Self::Backup => Self::Active,
        }
    }

    /// Returns the word for the state in the state file and for the agent.
    #[must_use]
    pub fn word(self, active: ActiveWord) -> &'static str {
        match (self, active) {
            (Self::Active, ActiveWord::Master) => "master",
            (Self::Active, ActiveWord::Primary) => "primary",
            (Self::Backup, _) => "backup",
        }
    }
}
