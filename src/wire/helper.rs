//! The channel between the daemon and a helper process that runs programs: one byte asks for a run, one datagram
//! reports how it ended and what it printed.

use crate::errno::Errno;

/// The most lines that are logged of a run's output.
pub const MAX_LINES: usize = 64;

/// A longer line is logged in pieces of so many bytes.
pub const MAX_LINE: usize = 240;

/// As much as these take, and a byte more, which says that there was more.
pub const MAX_OUTPUT: usize = MAX_LINES * (MAX_LINE + 1) + 1;

/// One run of `conntrackd -C FILE` with a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Commit, Self::Flush, Self::Resync, Self::Bulk, Self::Timers, Self::Control];

    /// As conntrackd knows it.
    #[must_use]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// The VIP is on the watched interface.
    Master,
    /// It is not.
    Backup,
    /// The watched interface is absent or down.
    Fault,
}

impl HookState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Master, Self::Backup, Self::Fault];

    /// As keepalived writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Master => "MASTER",
            Self::Backup => "BACKUP",
            Self::Fault => "FAULT",
        }
    }
}

/// What a helper process can be asked to run: nothing but what was configured at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conntrackd => "conntrackd",
            Self::Hook => "hook",
        }
    }
}

impl Request {
    /// Who runs it.
    #[must_use]
    pub fn helper(self) -> HelperKind {
        match self {
            Self::Sync(_) => HelperKind::Conntrackd,
            Self::Hook(_) => HelperKind::Hook,
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// How it ended.
    pub end: CommandResult,
    /// Processes that a failed run had left in its session, and that were killed.
    pub killed: u32,
    /// The beginning of what was printed, up to [`MAX_OUTPUT`] bytes.
    pub output: &'a [u8],
}

impl Request {
    /// Every request; its byte is its place here.
    fn all() -> impl Iterator<Item = Self> {
        SyncCommand::ALL.map(Self::Sync).into_iter().chain(HookState::ALL.map(Self::Hook))
    }

    /// The byte that stands for it.
    #[must_use]
    pub fn encode(self) -> u8 {
        let mut numbered = (0..).zip(Self::all());
        numbered.find(|(_, request)| *request == self).map_or(u8::MAX, |(byte, _)| byte)
    }

    /// The request that a byte stands for.
    #[must_use]
    pub fn decode(byte: u8) -> Option<Self> {
        Self::all().nth(byte.into())
    }
}

impl<'a> Report<'a> {
    /// The numbers, behind which the output follows in the datagram.
    #[must_use]
    pub fn head(&self) -> [[u8; 4]; 3] {
        let (kind, value) = match self.end {
            CommandResult::Exited(code) => (0, code.into()),
            CommandResult::Signalled(signal) => (1, signal.into()),
            CommandResult::TimedOut => (2, 0),
            CommandResult::NotStarted(Errno(errno)) => (3, errno.cast_unsigned()),
            CommandResult::NotConfigured(Errno(errno)) => (4, errno.cast_unsigned()),
        };
        [kind, value, self.killed].map(u32::to_ne_bytes)
    }

    /// From a datagram.
    #[must_use]
    pub fn decode(datagram: &'a [u8]) -> Option<Self> {
        let (head, output) = datagram.split_at_checked(12)?;
        let [kind, value, killed] = *head.as_chunks().0 else { return None };
        let [kind, value, killed] = [kind, value, killed].map(u32::from_ne_bytes);
        let errno = Errno(value.cast_signed());
        let end = match kind {
            0 => CommandResult::Exited(value.try_into().ok()?),
            1 => CommandResult::Signalled(value.try_into().ok()?),
            2 => CommandResult::TimedOut,
            3 => CommandResult::NotStarted(errno),
            4 => CommandResult::NotConfigured(errno),
            _ => return None,
        };
        Some(Self { end, killed, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_sent_and_nothing_else_does() {
        let known = (0..=u8::MAX).filter_map(Request::decode);
        assert!(known.eq(Request::all()));
        assert!((0..).zip(Request::all()).all(|(byte, request)| request.encode() == byte));
        assert_eq!(Request::all().count(), 6 + 3);
    }

    #[test]
    fn reports_arrive_as_sent() {
        let ends = [
            CommandResult::Exited(255),
            CommandResult::Signalled(9),
            CommandResult::TimedOut,
            CommandResult::NotStarted(Errno(2)),
            // EDQUOT on MIPS.
            CommandResult::NotConfigured(Errno(1133)),
        ];
        for end in ends {
            let report = Report { end, killed: 2, output: b"a line" };
            let mut datagram = report.head().concat();
            datagram.extend(report.output);
            assert_eq!(Report::decode(&datagram), Some(report));
        }
        for junk in [&[5; 20][..], &[0; 11], &[]] {
            assert_eq!(Report::decode(junk), None);
        }
    }
}
