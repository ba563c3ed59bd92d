//! The channel between the daemon and a helper process that runs programs: one byte asks for a run, datagrams
//! report what it prints and how it ends.

use heapless::Vec;

use crate::errno::Errno;

/// The longest line that a message carries, in bytes.
pub const MAX_LINE: usize = 240;

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

/// One run of the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookCall {
    /// What this router has become.
    pub state: HookState,
    /// What the hook was told before this state, whether that run succeeded or not; none at first. A run that is
    /// repeated is the same call again.
    pub previous: Option<HookState>,
}

/// What a helper process can be asked to run: nothing but what was configured at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A command of conntrackd.
    Sync(SyncCommand),
    /// The hook.
    Hook(HookCall),
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

/// What a helper process reports.
#[derive(Debug, PartialEq, Eq)]
pub enum HelperEvent<'a> {
    /// A line that was printed, or a piece of a long one.
    Printed(&'a [u8]),
    /// The program that was asked for has ended.
    Ended {
        /// How.
        end: CommandResult,
        /// Bytes of output that were discarded since the last such report.
        discarded: u32,
        /// Processes that a failed run had left in its session, and that were killed.
        killed: u32,
    },
    /// The helper process itself has ended: what an empty or unreadable datagram means.
    Gone,
}

/// An encoded [`HelperEvent`].
pub type Datagram = Vec<u8, { MAX_LINE + 1 }>;

const PRINTED: u8 = 0;
const ENDED: u8 = 1;

impl Request {
    /// Every request; its byte is its place here.
    fn all() -> impl Iterator<Item = Self> {
        let previous = [None].into_iter().chain(HookState::ALL.map(Some));
        let calls = previous.flat_map(|previous| {
            HookState::ALL.map(|state| Self::Hook(HookCall { state, previous }))
        });
        SyncCommand::ALL.map(Self::Sync).into_iter().chain(calls)
    }

    /// The byte that stands for it.
    #[must_use]
    pub fn encode(self) -> u8 {
        (0..)
            .zip(Self::all())
            .find(|(_, request)| *request == self)
            .map_or(u8::MAX, |(byte, _)| byte)
    }

    /// The request that a byte stands for.
    #[must_use]
    pub fn decode(byte: u8) -> Option<Self> {
        Self::all().nth(byte.into())
    }
}

impl<'a> HelperEvent<'a> {
    /// As a datagram. A line longer than [`MAX_LINE`] is cut.
    #[must_use]
    pub fn encode(&self) -> Datagram {
        let mut bytes = Datagram::new();
        match self {
            Self::Printed(line) => {
                bytes.extend([PRINTED].iter().chain(*line).copied().take(MAX_LINE + 1));
            }
            Self::Ended { end, discarded, killed } => {
                let (kind, value) = match *end {
                    CommandResult::Exited(code) => (0, code.into()),
                    CommandResult::Signalled(signal) => (1, signal.into()),
                    CommandResult::TimedOut => (2, 0),
                    CommandResult::NotStarted(Errno(errno)) => (3, errno.cast_unsigned()),
                    CommandResult::NotConfigured(Errno(errno)) => (4, errno.cast_unsigned()),
                };
                bytes.extend([ENDED, kind]);
                bytes.extend([value, *discarded, *killed].into_iter().flat_map(u32::to_ne_bytes));
            }
            Self::Gone => {}
        }
        bytes
    }

    /// From a datagram.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Self {
        match bytes {
            [PRINTED, line @ ..] if line.len() <= MAX_LINE => Self::Printed(line),
            [ENDED, kind, numbers @ ..] => Self::decode_end(*kind, numbers).unwrap_or(Self::Gone),
            _ => Self::Gone,
        }
    }

    fn decode_end(kind: u8, numbers: &[u8]) -> Option<Self> {
        let (numbers, []) = numbers.as_chunks() else { return None };
        let [value, discarded, killed] = *numbers else { return None };
        let [value, discarded, killed] = [value, discarded, killed].map(u32::from_ne_bytes);
        let errno = Errno(value.cast_signed());
        let end = match kind {
            0 => CommandResult::Exited(value.try_into().ok()?),
            1 => CommandResult::Signalled(value.try_into().ok()?),
            2 => CommandResult::TimedOut,
            3 => CommandResult::NotStarted(errno),
            4 => CommandResult::NotConfigured(errno),
            _ => return None,
        };
        Some(Self::Ended { end, discarded, killed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_sent_and_nothing_else_does() {
        assert!(Request::all().all(|request| Request::decode(request.encode()) == Some(request)));
        let known = (0..=u8::MAX).filter_map(Request::decode);
        assert!(known.eq(Request::all()));
        assert_eq!(Request::all().count(), 6 + 3 * 4);
    }

    /// What the log calls them is what operators search it for.
    #[test]
    fn helpers_keep_their_names() {
        let names = [HelperKind::Conntrackd, HelperKind::Hook].map(HelperKind::name);
        assert_eq!(names, ["conntrackd", "hook"]);
    }

    #[test]
    fn events_arrive_as_sent() {
        let ends = [
            CommandResult::Exited(0),
            CommandResult::Exited(255),
            CommandResult::Signalled(9),
            CommandResult::TimedOut,
            CommandResult::NotStarted(Errno(2)),
            // EDQUOT on MIPS.
            CommandResult::NotConfigured(Errno(1133)),
        ];
        let ends = ends.map(|end| HelperEvent::Ended { end, discarded: 1_000_000, killed: 2 });
        let lines = [&b"a line"[..], b"", &[b'a'; MAX_LINE]].map(HelperEvent::Printed);
        for event in ends.into_iter().chain(lines).chain([HelperEvent::Gone]) {
            assert_eq!(HelperEvent::decode(&event.encode()), event);
        }
        let cut = HelperEvent::Printed(&[b'a'; MAX_LINE + 1]).encode();
        assert_eq!(HelperEvent::decode(&cut), HelperEvent::Printed(&[b'a'; MAX_LINE]));
    }

    #[test]
    fn nothing_else_is_an_event() {
        for junk in [
            &[][..],
            &[0; MAX_LINE + 2],
            &[1],
            &[1; 13],
            &[1; 15],
            &[1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2],
        ] {
            assert_eq!(HelperEvent::decode(junk), HelperEvent::Gone);
        }
    }
}
