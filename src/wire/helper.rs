//! The channel between the daemon and a helper process that runs programs: one datagram requests a run, another reports
//! its end and its output, in the format of [`postcard`].

use serde::{Deserialize, Serialize};

use crate::errno::Errno;

/// The most lines that are logged of a run's output.
pub const MAX_LINES: usize = 64;

/// The most bytes of a piece: a longer line of output is logged in pieces, a line each.
pub const MAX_PIECE: usize = 240;

/// The most bytes of output that are reported: these lines, and a byte that shows that more was printed.
pub const MAX_OUTPUT: usize = MAX_LINES * (MAX_PIECE + 1) + 1;

/// The longest datagram: three numbers and the output.
pub const MAX_REPORT: usize = MAX_OUTPUT + 20;

/// The most runs of the hook that begin within [`HOOK_PERIOD`]: five, and that of an exit.
pub const HOOK_RUNS: usize = 6;

/// The time for [`HOOK_RUNS`], in seconds.
pub const HOOK_PERIOD: u64 = 10;

/// One run of `conntrackd -C FILE` with a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncCommand {
    /// `-c`: commit the external cache, which the peers have filled, to the kernel.
    Commit,
    /// `-f`: flush the internal and the external cache.
    Flush,
    /// `-R`: fill the internal cache from the kernel.
    Resync,
    /// `-B`: send the internal cache to the peers.
    Bulk,
    /// `-t`: shorten the kernel's timers, so that stale entries expire.
    Timers,
    /// `-n`: request all entries of the active peer.
    Control,
}

impl SyncCommand {
    /// Returns conntrackd's option.
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

/// A request to the helper of conntrackd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncRequest {
    /// Run this command.
    Run(SyncCommand),
    /// Report exit code 1 if conntrackd is another one than that of the last command, otherwise 0.
    Check,
}

/// The state that the hook is run for, by the names of keepalived's notify scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookState {
    /// The VIP is on the watched interface.
    Master,
    /// The VIP is not on the watched interface.
    Backup,
    /// The watched interface is absent, down or without a carrier.
    Fault,
}

impl HookState {
    /// Returns keepalived's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Master => "MASTER",
            Self::Backup => "BACKUP",
            Self::Fault => "FAULT",
        }
    }
}

/// A run of the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
    /// The state that it is for.
    pub state: HookState,
    /// How long each of its programs may take, in milliseconds.
    pub limit: u32,
    /// Whether programs run, too, that have succeeded since the state began while another has failed.
    pub anew: bool,
}

/// The program that a helper process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperKind {
    /// conntrackd's commands.
    Conntrackd,
    /// The hook.
    Hook,
}

impl HelperKind {
    /// Returns its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conntrackd => "conntrackd",
            Self::Hook => "hook",
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
    /// There is no program for the state.
    Unneeded,
    /// It was killed at its time limit.
    TimedOut,
    /// It could not be started.
    NotStarted(Errno),
    /// Its configuration could not be opened.
    NotConfigured(Errno),
}

/// A helper process's report of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunReport<'a> {
    /// The end of the first program that failed, otherwise of the last.
    pub end: CommandResult,
    /// The number of processes that were killed in the session of a failed run.
    pub killed: u32,
    /// The beginning of its output, up to [`MAX_OUTPUT`] bytes.
    pub output: &'a [u8],
}
