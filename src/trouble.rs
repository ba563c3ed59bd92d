//! Troubles in words and by severity, for the status line, `--list`, SIGUSR1, the metrics and `--check`.
//! docs/monitoring.md says what to do about each.

use core::fmt::{self, Display, Formatter};

use crate::monitor::{Cause, Trouble, Troubles};
use crate::wire::rtnl::Mac;

impl Trouble {
    /// Returns `critical` if the router may do harm or its reported state may be wrong, else `warning`.
    pub(crate) fn severity(&self) -> &'static str {
        match self {
            Self::SplitBrain(_)
            | Self::StateFileFails
            | Self::StateFileShared
            | Self::DuplicateAddress => "critical",
            Self::SpareFails
            | Self::InterfaceAbsent
            | Self::InterfaceDown(_)
            | Self::Misplaced(..)
            | Self::KeepalivedGone
            | Self::AgentFails
            | Self::HookFails
            | Self::ConntrackdFails
            | Self::LogFails => "warning",
        }
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SplitBrain(mac) => {
                write!(f, "split brain: {} claims the VIP", mac_text(Some(mac)))
            }
            Self::StateFileFails => write!(f, "state file not written"),
            Self::StateFileShared => write!(f, "another process writes the state file"),
            Self::SpareFails => write!(f, "no spare state file"),
            Self::InterfaceAbsent => write!(f, "interface not found"),
            Self::InterfaceDown(Cause::InterfaceDown) => write!(f, "the interface is down"),
            Self::InterfaceDown(_) => write!(f, "the interface has no carrier"),
            Self::Misplaced(name, cidr) => write!(f, "{cidr} is on {name}"),
            Self::DuplicateAddress => write!(f, "duplicate address detection failed"),
            Self::KeepalivedGone => write!(f, "keepalived does not run"),
            Self::AgentFails => write!(f, "agent not notified"),
            Self::HookFails => write!(f, "hook fails"),
            Self::ConntrackdFails => write!(f, "conntrackd fails"),
            Self::LogFails => write!(f, "log file not reopened"),
        }
    }
}

/// Returns troubles as a suffix.
pub(crate) fn list_troubles(troubles: &Troubles) -> impl Display + use<> {
    let troubles = *troubles;
    fmt::from_fn(move |f| {
        troubles.iter().flatten().try_for_each(|trouble| write!(f, "; {trouble}"))
    })
}

/// Returns a MAC address in the usual form.
pub(crate) fn mac_text(mac: Option<Mac>) -> impl Display {
    fmt::from_fn(move |f| {
        let Some([m0, m1, m2, m3, m4, m5]) = mac else { return f.write_str("none") };
        write!(f, "{m0:02x}:{m1:02x}:{m2:02x}:{m3:02x}:{m4:02x}:{m5:02x}")
    })
}
