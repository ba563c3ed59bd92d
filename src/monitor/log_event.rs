//! What is worth a line in the log. The words are in [`crate::log`].

use super::{
    Cause, CommandResult, Dump, DumpResult, Failure, HelperKind, HookState, State, SyncCommand,
};
use crate::errno::Errno;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Mac;

/// An event that operators want to read of. `count` is how often it happened since its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "most fields need no more than their names")]
pub enum LogEvent {
    /// The first state known.
    Initial(State),
    /// The state has changed, for this reason.
    Changed(Cause),
    /// The state file holds this now.
    Wrote(State),
    /// The state file could not be written; it is tried again.
    NotWritten { errno: Errno, count: u32 },
    /// The metrics file could not be written; it is tried again.
    MetricsNotWritten { errno: Errno, count: u32 },
    /// The agent answered 200 for this.
    Notified(State),
    /// The agent took a state after so many failed attempts.
    AgentBack { failures: u32 },
    /// An attempt to tell the agent failed; it is tried again.
    NotNotified { failure: Failure, count: u32 },
    /// The watched interface is there, with this index.
    InterfaceFound { ifindex: u32 },
    /// The watched interface is not there.
    InterfaceMissing,
    /// The watched interface is not there, but its name is an alternative one of another.
    AlternativeName {
        /// The other interface's own name.
        owner: InterfaceName,
    },
    /// Netlink events were lost; everything is asked for again.
    Overrun { count: u32 },
    /// A netlink message could not be read; everything is asked for again.
    MalformedMessage { count: u32 },
    /// A dump failed; it is asked for again.
    DumpFailed { dump: Dump, result: DumpResult, count: u32 },
    /// Somebody other than the kernel sent a netlink message; it was ignored.
    ForeignSender {
        /// The sender's netlink port.
        port: u32,
        count: u32,
    },
    /// The VIP failed duplicate address detection: the kernel does not use it, so it is not here.
    DadFailed { count: u32 },
    /// Another station claims the VIP while it is ours.
    SplitBrain {
        mac: Mac,
        /// Where it was heard.
        ifindex: u32,
        count: u32,
    },
    /// Other stations claim the VIP while it is ours, beside those that have a line of their own.
    MoreClaims {
        /// Where they were heard.
        ifindex: u32,
        count: u32,
    },
    /// A frame that announces an address could not be sent.
    NotAnnounced { interface: InterfaceName, errno: Errno, count: u32 },
    /// Addresses are not announced, because there are too many at once.
    TooManyAddresses { total: u32 },
    /// The addresses of some links are not announced, because there are too many links.
    TooManyLinks { ignored: u32 },
    /// All commands for a state have been run.
    Synced(State),
    /// A command of conntrackd failed; the others are run all the same.
    CommandFailed { command: SyncCommand, end: CommandResult },
    /// The process that runs these programs has gone.
    HelperGone(HelperKind),
    /// conntrackd's configuration is not there yet; it is waited for.
    ConntrackdUnconfigured,
    /// The hook ended with exit code 0 for this state, after so many failed runs.
    HookSucceeded { state: HookState, failures: u32 },
    /// The hook failed for this state; it is run again.
    HookFailed { state: HookState, end: CommandResult, count: u32 },
    /// The network namespace has been deleted.
    NamespaceGone,
    /// SIGHUP: everything is read, written and reported again.
    Reloading,
}
