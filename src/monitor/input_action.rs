//! The inputs and actions of [`super::Monitor`].

use super::{
    AddressKey, Announcement, Answer, CommandResult, Duration, FoundFiles, HelperKind, HookState,
    Instant, Keepalived, LogEvent, ManagerNotice, Outcome, Probe, Question, State, SyncCommand,
};
use crate::errno::Errno;
use crate::wire::Claim;
use crate::wire::rtnl::Body;

/// An event, or the result of an [`Action`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The netlink queue is empty: all events until now have been passed in.
    QueueEmpty,
    /// An event of the kernel.
    Event(Body),
    /// A part of the kernel's answer to [`Action::Ask`]. No event is read until that has ended.
    Entry(Body),
    /// The end of that answer.
    Answered(Answer),
    /// The kernel dropped netlink events.
    Overrun,
    /// A netlink message could not be read, or did not fit the buffer. This is the index of its interface, if known.
    MalformedMessage(Option<u32>),
    /// A netlink message came from a sender other than the kernel, with this port.
    ForeignSender(u32),
    /// A write of the state file ended.
    StateFile(Result<(), Errno>),
    /// A preparation for the next change of the state file ended.
    StatePrepared(Result<(), Errno>),
    /// A write of the metrics file ended.
    MetricsFile(Result<(), Errno>),
    /// The result of an attempt to notify the agent.
    Agent(Outcome),
    /// The result of [`Action::CheckFiles`].
    FilesChecked(FoundFiles),
    /// The result of an attempt to notify the service manager.
    ManagerNotified(Result<(), Errno>),
    /// The log file was reopened, or could not be: the old one stays in use.
    #[expect(missing_docs, reason = "the field needs no more than its name")]
    LogReopened { succeeded: bool },
    /// A signal was received.
    Control(Control),
    /// The result of sending an announcement of this address.
    Sent(AddressKey, Result<(), Errno>),
    /// The result of sending a probe.
    Probed(Result<(), Errno>),
    /// A program ended, or its helper process did.
    Helper(HelperKind, HelperNews),
    /// A file system was mounted or unmounted: the network namespace may have been deleted. The next such input follows
    /// [`Action::CheckNamespace`] at the earliest.
    MountsChanged,
    /// The result of [`Action::CheckKeepalived`].
    KeepalivedChecked(Keepalived),
    /// The wall clock has been set, so the Unix times in the figures are wrong.
    ClockSet,
    /// The network namespace has been deleted.
    NamespaceGone,
    /// An action failed that has no result of its own.
    Failed(Action, Errno),
    /// A source of inputs failed for good.
    SourceFailed(Source, Errno),
    /// A frame was received, with the claim in it, the index of its interface, and the time at which the kernel received
    /// it. None: the frame has no claim, or the packet socket reported an error.
    Frame(Option<(u32, Claim, Instant)>),
}

/// A report about a helper process, which runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperNews {
    /// The run under way ended.
    Ended(CommandResult),
    /// The helper process is gone, and with it the running program, if any.
    Gone,
}

/// A source of inputs without which the daemon cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// epoll, which reports all others.
    Poll,
    /// The signals.
    Signals,
}

impl Source {
    /// Returns the name of the system call that it is named after.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "epoll",
            Self::Signals => "signalfd",
        }
    }
}

/// A request to the daemon by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// SIGTERM, SIGINT: exit because of the signal with this number.
    Exit(i32),
    /// SIGHUP: reopen the log, then list, write and report everything again.
    Reload,
    /// SIGUSR1: log a status, and write the metrics.
    Status,
    /// SIGUSR2: reopen the log.
    ReopenLog,
}

/// A request to the caller. A colon is followed by the [`Input`] that brings the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the kernel: [`Input::Entry`] for each entry, then [`Input::Answered`].
    Ask(Question),
    /// Receive claims of the VIP on an interface, and discard those received earlier.
    WatchClaims {
        /// Its index. None: receive them on all interfaces.
        only: Option<u32>,
        /// Bind the socket even if the index is the same. The kernel unbinds it when the interface is deleted, and a
        /// new interface may get the same index.
        rebind: bool,
    },
    /// Start or stop reading frames. Until the first of these actions none are read.
    ReadFrames(bool),
    /// Send a frame: [`Input::Sent`].
    SendFrame(Announcement),
    /// Probe for another station with the VIP: [`Input::Probed`].
    SendProbe(Probe),
    /// Write the state file: [`Input::StateFile`].
    WriteState(State),
    /// After a write of this state, reported at this time, prepare the file of the other state: [`Input::StatePrepared`].
    PrepareState {
        /// The state.
        state: State,
        /// The time of its report.
        since: Instant,
    },
    /// Write the metrics file with [`super::Monitor::status`]: [`Input::MetricsFile`].
    WriteMetrics,
    /// Send the agent this state over a new connection: [`Input::Agent`].
    Notify(State),
    /// Read the agent's reply. Without one, close the connection: [`Input::Agent`], with [`super::Failure::TimedOut`].
    HangUp,
    /// Report to the parent that the state file holds the first state.
    SignalReady,
    /// Send this to the service manager: [`Input::ManagerNotified`].
    NotifyManager(ManagerNotice),
    /// Log this event.
    Log(LogEvent),
    /// Write [`super::Monitor::status`] to the log.
    LogStatus,
    /// Close the log file and open it again: [`Input::LogReopened`].
    ReopenLog,
    /// Run a command of conntrackd: [`HelperNews::Ended`].
    Sync(SyncCommand),
    /// Check that conntrackd is the one that the last command reached: [`HelperNews::Ended`], with exit code 1 if it was
    /// restarted since.
    CheckConntrackd,
    /// Run the hook: [`HelperNews::Ended`].
    #[expect(missing_docs, reason = "as in `HookRun`")]
    RunHook { state: HookState, limit: Duration, anew: bool },
    /// Check whether keepalived runs: [`Input::KeepalivedChecked`].
    CheckKeepalived,
    /// Check that the network namespace still exists: [`Input::NamespaceGone`], if not.
    CheckNamespace,
    /// Check that the agent's socket, the pid file and the state file are still the same: [`Input::FilesChecked`].
    CheckFiles,
    /// Exit now.
    Exit(ExitReason),
}

/// Why the daemon exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The signal with this number was received.
    Signal(i32),
    /// The network namespace has been deleted.
    NamespaceGone,
    /// The pid file is another daemon's, or has been removed.
    Superseded,
    /// The helper process that runs these programs is gone. A restart of the daemon starts a new one.
    HelperGone(HelperKind),
    /// This source of inputs failed.
    SourceFailed(Source),
}
