//! Every decision, and nothing else: no file descriptor, no clock, no system call.
//!
//! [`Monitor::on`] takes what happened and the time, and answers with what is to be done about it.
//! The loop in [`crate::run`] carries that out and brings the outcome back as the next input.

#![forbid(unsafe_code)]

mod announce;
mod backoff;
mod conntrack;
mod egress;
mod io;
mod links;
mod monitor;
mod namespace;
mod note;
mod outbox;
mod output;
mod own_macs;
mod repeat;
mod resync;
mod stations;
mod throttle;
mod vip;

pub use announce::{AddressKey, Announcement, Kind, Local, Sent, Tables, Tempo};
pub use backoff::Backoff;
pub use conntrack::{Command, CommandEnd};
use io::MAX_ACTIONS;
pub use io::{Action, Actions, Ending, Input, Request, Status};
pub use monitor::{Monitor, Watch};
pub use namespace::NamespaceCheck;
pub use note::Note;
pub use outbox::{Failure, Outcome, Renotify};
pub use output::{MAX_LINE, Output};
pub use resync::{DumpEnd, Stage};
pub use smoltcp::time::{Duration, Instant};

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
