//! Troubles in words and by severity, for the status line, `--list`, SIGUSR1, the metrics and `--check`.
//! docs/monitoring.md says what to do about each.

use core::fmt::{self, Display, Formatter};

use super::describe::mac_text;
use crate::monitor::{Cause, Trouble, Troubles};
use crate::sys::interface::name_of;
use crate::wire::ifname::InterfaceName;

/// A trouble, and the name of the interface that it is about, looked up beforehand.
pub(crate) struct TroubleText(Trouble, Option<InterfaceName>);

impl TroubleText {
    /// Returns a trouble with the present name of its interface.
    pub(crate) fn new(trouble: Trouble) -> Self {
        let Trouble::Misplaced(ifindex, _) = trouble else { return Self(trouble, None) };
        Self(trouble, name_of(ifindex))
    }

    /// Returns `critical` if the router may do harm or its reported state may be wrong, else `warning`.
    pub(crate) fn severity(&self) -> &'static str {
        match self.0 {
            Trouble::SplitBrain(_)
            | Trouble::StateFileFails
            | Trouble::StateFileShared
            | Trouble::DuplicateAddress => "critical",
            Trouble::SpareFails
            | Trouble::InterfaceAbsent
            | Trouble::InterfaceDown(_)
            | Trouble::Misplaced(..)
            | Trouble::KeepalivedGone
            | Trouble::AgentFails
            | Trouble::HookFails
            | Trouble::ConntrackdFails
            | Trouble::LogFails => "warning",
        }
    }
}

impl Display for TroubleText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Trouble::SplitBrain(mac), _) => {
                write!(f, "split brain: {} claims the VIP", mac_text(Some(mac)))
            }
            (Trouble::StateFileFails, _) => write!(f, "state file not written"),
            (Trouble::StateFileShared, _) => write!(f, "another process writes the state file"),
            (Trouble::SpareFails, _) => write!(f, "no spare state file"),
            (Trouble::InterfaceAbsent, _) => write!(f, "interface not found"),
            (Trouble::InterfaceDown(Cause::InterfaceDown), _) => write!(f, "the interface is down"),
            (Trouble::InterfaceDown(_), _) => write!(f, "the interface has no carrier"),
            (Trouble::Misplaced(_, cidr), Some(name)) => write!(f, "{cidr} is on {name}"),
            (Trouble::Misplaced(index, cidr), None) => write!(f, "{cidr} is on interface {index}"),
            (Trouble::DuplicateAddress, _) => write!(f, "duplicate address detection failed"),
            (Trouble::KeepalivedGone, _) => write!(f, "keepalived does not run"),
            (Trouble::AgentFails, _) => write!(f, "agent not notified"),
            (Trouble::HookFails, _) => write!(f, "hook fails"),
            (Trouble::ConntrackdFails, _) => write!(f, "conntrackd fails"),
            (Trouble::LogFails, _) => write!(f, "log file not reopened"),
        }
    }
}

/// Returns troubles as a suffix.
pub(crate) fn list_troubles(troubles: &Troubles) -> impl Display + use<> {
    let troubles = troubles.map(|trouble| trouble.map(TroubleText::new));
    fmt::from_fn(move |f| {
        troubles.iter().flatten().try_for_each(|trouble| write!(f, "; {trouble}"))
    })
}
