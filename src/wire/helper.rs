//! The channel between the daemon and a helper process that runs programs: one datagram asks for a run, one reports how
//! it ended and what it printed, in the format of [`postcard`].

use serde::{Deserialize, Serialize};

use crate::errno::Errno;

/// The most lines that are logged of a run's output.
pub const MAX_LINES: usize = 64;

/// A longer line is logged in pieces of so many bytes.
pub const MAX_LINE: usize = 240;

/// As much as these take, and a byte more, which says that there was more.
pub const MAX_OUTPUT: usize = MAX_LINES * (MAX_LINE + 1) + 1;

/// The longest datagram: the output, and three numbers before it.
pub const MAX_REPORT: usize = MAX_OUTPUT + 20;

/// One run of `conntrackd -C FILE` with a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncCommand {
    /// `-c`: commit the external cache, which the peers have filled, to the kernel.
    Commit,
    /// `-f`: flush the internal and the external cache.
    Flush,
    /// `-R`: fill the internal cache from the kernel.
    Resync,
    /// `-B`: send all of it to the peers.
    Bulk,
    /// `-t`: shorten the kernel's timers, so that what is left over goes away.
    Timers,
    /// `-n`: ask the active peer for all it has.
    Control,
}

impl SyncCommand {
    /// As conntrackd knows it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Commit => "-c",
            Self::Flush => "-f",
            Self::Resync => "-R",
            Self::Bulk => "-B",
            Self::Timers => "-t",
            Self::Control => "-n",
        }
    }
}

/// What the hook is told that this router is: the words of keepalived's notify scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookState {
    /// The VIP is on the watched interface.
    Master,
    /// It is not.
    Backup,
    /// The watched interface is absent or down.
    Fault,
}

impl HookState {
    /// As keepalived writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Master => "MASTER",
            Self::Backup => "BACKUP",
            Self::Fault => "FAULT",
        }
    }
}

/// What a helper process can be asked to run: nothing but what was configured at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A command of conntrackd.
    Sync(SyncCommand),
    /// The hook, for this state.
    Hook(HookState),
}

/// What a helper process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperKind {
    /// conntrackd's commands.
    Conntrackd,
    /// The hook.
    Hook,
}

impl HelperKind {
    /// As the log calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conntrackd => "conntrackd",
            Self::Hook => "hook",
        }
    }
}

impl Request {
    /// Who runs it.
    pub fn helper(self) -> HelperKind {
        match self {
            Self::Sync(_) => HelperKind::Conntrackd,
            Self::Hook(_) => HelperKind::Hook,
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandResult {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
    /// It was killed at its time limit.
    TimedOut,
    /// It could not be started.
    NotStarted(Errno),
    /// It was not started, as its configuration could not be opened.
    NotConfigured(Errno),
}

/// What a helper process reports of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report<'a> {
    /// How it ended.
    pub end: CommandResult,
    /// Processes that a failed run had left in its session, and that were killed.
    pub killed: u32,
    /// The beginning of what was printed, up to [`MAX_OUTPUT`] bytes.
    pub output: &'a [u8],
}
