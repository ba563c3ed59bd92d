//! Every decision, and nothing else: no file descriptor, no clock, no system call.
//!
//! [`Monitor::on`] takes what happened and the time, and answers with what is to be done about it.
//! The loop in [`crate::daemon`] carries that out and brings the outcome back as the next input.

#![forbid(unsafe_code)]

mod announce;
mod backoff;
mod conntrack;
mod egress;
mod input_action;
mod links;
mod log_event;
mod namespace;
mod outbox;
mod output;
mod own_macs;
mod rate_limit;
mod resync;
mod split_brain;
mod state_machine;
mod throttle;
mod vip;

pub use announce::{AddressKey, AnnounceTiming, Announcement, FrameKind, Local, Sent, Tables};
pub use backoff::Backoff;
use input_action::MAX_ACTIONS;
pub use input_action::{Action, Actions, Control, ExitReason, Input, Status};
pub use log_event::LogEvent;
pub use namespace::NamespaceCheck;
pub use outbox::{Failure, Outcome, Renotify};
pub use output::Output;
pub use resync::{DumpKind, DumpResult};
pub use smoltcp::time::{Duration, Instant};
pub use state_machine::{Monitor, MonitorConfig};

pub use crate::wire::helper::{CommandResult, SyncCommand};

/// Whether this router is the active one: what keepalived says by adding or removing the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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
