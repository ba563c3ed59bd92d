//! What goes into the core, and what comes out.

use super::{
    AddressKey, Announcement, CommandResult, Dump, HelperKind, LogEvent, ManagerNotice, Outcome,
    Probe, Request, State,
};
use crate::errno::Errno;
use crate::wire::Claim;
use crate::wire::rtnl::Message;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The netlink queue was empty at this time: what the kernel had to say until then has been handled.
    QueueEmpty,
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
    /// The result of an attempt to tell the agent.
    Agent(Outcome),
    /// Somebody asks for something.
    Control(Control),
    /// An announcement of this address was sent, or could not be.
    Sent(AddressKey, Result<(), Errno>),
    /// A probe was sent, or could not be.
    Probed(Result<(), Errno>),
    /// News of a process that runs programs.
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

/// What is heard of a process that runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperNews {
    /// The program under way ended.
    Ended(CommandResult),
    /// The process has gone, and with it the program, if one was under way.
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

/// What is to be done. Where an [`Input`] is named, it brings the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the kernel to list something: [`Input::Netlink`], or [`Input::RequestFailed`].
    RequestDump {
        /// What.
        dump: Dump,
        /// The sequence number of the request.
        sequence: u32,
    },
    /// Let through events of addresses on the interface with this index only, if any, and of the VIP's address on any;
    /// those of links, and what was asked for, always. Until the first of these, all events get through.
    SetAddressFilter(Option<u32>),
    /// Receive claims of the VIP on this interface, once frames are read. Earlier ones do not count.
    WatchClaims {
        /// Its index.
        ifindex: u32,
        /// The kernel may have unbound the socket since, though the index is the same: it does so when
        /// an interface goes, and another may come with its index.
        rebind: bool,
    },
    /// Read frames, or leave them to the kernel until told otherwise, as at the start.
    ReadFrames(bool),
    /// Send a frame: [`Input::Sent`].
    SendFrame(Announcement),
    /// Ask who else has the VIP: [`Input::Probed`].
    SendProbe(Probe),
    /// Write the state file: [`Input::StateFile`].
    WriteState(State),
    /// Write the metrics file with [`super::Monitor::status`]: [`Input::MetricsFile`].
    WriteMetrics,
    /// Send the agent this state over a new connection: [`Input::Agent`].
    Notify(State),
    /// Read what the agent has sent, or, if there is nothing, close the connection: [`Input::Agent`], for that with
    /// [`super::Failure::TimedOut`].
    HangUp,
    /// The state file holds what was to be reported at the start, or after [`ManagerNotice::Reloading`].
    SignalReady,
    /// Send this to the service manager.
    TellManager(ManagerNotice),
    /// Write a line.
    Log(LogEvent),
    /// Write [`super::Monitor::status`] to the log.
    LogStatus,
    /// Close the log file and open it again.
    ReopenLog,
    /// Run a command of conntrackd, or the hook: [`HelperNews::Ended`].
    Run(Request),
    /// Look whether the network namespace is still there: [`Input::NamespaceGone`], if not.
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
    /// This process can run no more programs. Whoever starts the daemon again starts it, too.
    HelperGone(HelperKind),
}
