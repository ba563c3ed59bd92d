//! What goes into the core, and what comes out.

use heapless::Vec;

use super::{
    AddressKey, Announcement, CommandResult, Dump, Failure, HelperKind, Instant, LogEvent,
    ManagerNotice, Outcome, Request, State,
};
use crate::errno::Errno;
use crate::wire::Claim;
use crate::wire::rtnl::{Mac, Message};

/// The most actions that one input can bring about: three of its own at the most, and one of most of the steps
/// that follow; two of the report, or else one each for the agent, conntrackd, the hook, the service manager and
/// the metrics.
pub(super) const MAX_ACTIONS: usize = 16;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The netlink queue was empty at this time: what is due then can be done. See
    /// [`super::Monitor::deadline`].
    Tick,
    /// A netlink message from the kernel: an event, or part of the reply to [`Action::RequestDump`].
    Netlink(Message),
    /// The kernel had to drop netlink events.
    Overrun,
    /// A netlink message could not be read, or was too long for the buffer.
    MalformedMessage,
    /// A netlink message from elsewhere than the kernel, with its sender's port.
    ForeignSender(u32),
    /// The request of [`Action::RequestDump`] could not be sent.
    RequestFailed(Errno),
    /// A write of the state file ended.
    StateFile(Result<State, Errno>),
    /// A write of the metrics file ended.
    MetricsFile(Result<(), Errno>),
    /// An attempt to tell the agent came to something.
    Agent(Outcome),
    /// All that the agent has sent so far has been read: told after [`Action::ReadReplies`].
    RepliesRead,
    /// Somebody asks for something.
    Control(Control),
    /// An announcement of this address was sent, or could not be.
    Sent(AddressKey, Result<(), Errno>),
    /// A process that runs programs tells something.
    Helper(HelperKind, HelperNews),
    /// Something was mounted or unmounted: the network namespace may have been deleted. Not told again
    /// before [`Action::CheckNamespace`].
    MountsChanged,
    /// The network namespace has been deleted.
    NamespaceGone,
    /// A frame came: a station on the interface with this index claims an address.
    ClaimReceived(u32, Claim),
    /// A frame came that claims nothing, or an error of the packet socket in its place.
    NoClaim,
}

/// What a process that runs programs tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperNews {
    /// The program under way ended.
    Ended(CommandResult),
    /// The process was killed, and has been begun anew.
    Restarted,
    /// No program can be run any more.
    Gone,
}

/// What can be asked of the daemon by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// SIGTERM, SIGINT: exit. This is the signal's number.
    Exit(i32),
    /// SIGHUP: reopen the log, read, write and report everything again.
    Reload,
    /// SIGUSR1: log a status, and write the metrics.
    Status,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the kernel to list something. [`Input::Netlink`] brings the reply, or [`Input::RequestFailed`]
    /// tells that none comes.
    RequestDump {
        /// What.
        dump: Dump,
        /// The sequence number of the request.
        sequence: u32,
    },
    /// Let through events of addresses on the interface with this index only, or of none at all; those of
    /// links, and what was asked for, always. Until the first of these, all events get through.
    SetAddressFilter(Option<u32>),
    /// Receive claims of the VIP on this interface. Earlier ones do not count.
    WatchClaims {
        /// Its index.
        ifindex: u32,
        /// The kernel may have unbound the socket since, though the index is the same: it does so when
        /// an interface goes, and another may come with its index.
        rebind: bool,
    },
    /// Read frames, or leave them to the kernel until told otherwise.
    ReadFrames(bool),
    /// Send a frame. [`Input::Sent`] tells what came of it.
    SendFrame(Announcement),
    /// Write the state file. [`Input::StateFile`] tells what came of it.
    WriteState(State),
    /// Write the metrics file, with what [`super::Monitor::status`] tells. [`Input::MetricsFile`] tells what came
    /// of it.
    WriteMetrics,
    /// Tell the agent, over a new connection. [`Input::Agent`] tells what comes of it.
    Notify(State),
    /// Read what the agent has sent. [`Input::Agent`] tells what that was, then [`Input::RepliesRead`].
    ReadReplies,
    /// Close the connection to the agent.
    HangUp,
    /// What is to be reported at the start, or after [`ManagerNotice::Reloading`], is written: whoever waits for
    /// that may go on.
    SignalReady,
    /// Tell the service manager.
    TellManager(ManagerNotice),
    /// Write a line.
    Log(LogEvent),
    /// Write the status, which [`super::Monitor::status`] tells.
    LogStatus,
    /// Close the log file and open it again.
    ReopenLog,
    /// Run a command of conntrackd, or the hook. [`HelperNews::Ended`] tells when it has ended.
    Run(Request),
    /// Look whether the network namespace is still there. If not, [`Input::NamespaceGone`] tells.
    CheckNamespace,
    /// End now.
    Exit(ExitReason),
}

/// Why the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to, by the signal with this number.
    Signal(i32),
    /// There is nothing left to watch.
    NamespaceGone,
}

/// The answer to one input.
pub type Actions = Vec<Action, MAX_ACTIONS>;

/// What SIGUSR1 shows, and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The last state reported.
    pub state: Option<State>,
    /// Since when.
    pub changed_at: Option<Instant>,
    /// The index of the watched interface.
    pub ifindex: Option<u32>,
    /// The state that the agent has not confirmed.
    pub undelivered: Option<State>,
    /// The last station that claimed the VIP while it was ours.
    pub claimant: Option<Mac>,
    /// What has been counted.
    pub counters: Counters,
}

/// How often things have happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Netlink messages about addresses and links.
    pub events: u64,
    /// Changes of state, the initial one included.
    pub transitions: u64,
    /// Times that the kernel had to drop netlink events.
    pub overruns: u64,
    /// Netlink messages that could not be read.
    pub malformed: u64,
    /// Dumps that were asked for.
    pub dumps: u64,
    /// Dumps that failed.
    pub dump_failures: u64,
    /// Netlink messages that did not come from the kernel.
    pub foreign: u64,
    /// State file writes that succeeded.
    pub writes: u64,
    /// State file writes that failed.
    pub write_failures: u64,
    /// Notifications that the agent answered with 200.
    pub notifications: u64,
    /// Attempts that failed, by [`Failure::kind`].
    pub notification_failures: [u64; Failure::KINDS],
    /// Metrics file writes that failed.
    pub metrics_failures: u64,
    /// Frames sent to announce addresses.
    pub announcements: u64,
    /// Frames that could not be sent.
    pub announcement_failures: u64,
    /// Addresses that were not announced, because there were too many at once.
    pub unannounced: u64,
    /// Links whose addresses are not announced, because there are too many.
    pub ignored_links: u64,
    /// Claims of the VIP by other stations while it was ours.
    pub claims: u64,
    /// Commands of conntrackd that were run.
    pub commands: u64,
    /// Commands that failed.
    pub command_failures: u64,
    /// Runs of the hook.
    pub hook_runs: u64,
    /// Those that did not end with exit code 0.
    pub hook_failures: u64,
}
