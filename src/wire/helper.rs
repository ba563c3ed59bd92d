//! The channel to a process that runs programs, a message in each datagram; and as much of conntrackd's
//! configuration as has to be understood.

use core::ffi::CStr;

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
    pub fn flag(self) -> &'static CStr {
        match self {
            Self::Commit => c"-c",
            Self::Flush => c"-f",
            Self::Resync => c"-R",
            Self::Bulk => c"-B",
            Self::Timers => c"-t",
            Self::Control => c"-n",
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
    pub fn word(self) -> &'static CStr {
        match self {
            Self::Master => c"MASTER",
            Self::Backup => c"BACKUP",
            Self::Fault => c"FAULT",
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

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
    /// It hung and was killed.
    TimedOut,
    /// It could not be started.
    NotStarted(Errno),
    /// It was not started: its configuration could not be used.
    NotConfigured(Errno),
    /// It was not started: it could not be confined to what its configuration's owner may do.
    NotConfined(Errno),
    /// The process that ran it was killed.
    Aborted,
}

/// A message to the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The program has printed this line, or a piece of it.
    Printed(&'a [u8]),
    /// A program has ended.
    Ended {
        /// The number it was requested with.
        number: u8,
        /// How it ended.
        end: CommandResult,
        /// How many bytes of its output were thrown away.
        dropped: u32,
    },
    /// The process was killed and restarted, and with it the program of this number, if one was running.
    Restarted(Option<u8>),
}

/// An encoded [`Message`].
pub type Datagram = Vec<u8, { MAX_LINE + 1 }>;

/// Says of a request's first byte that it stands for the hook: what that is told is in bits 0 and 1, what it
/// was told before, from 1 on, in bits 2 and 3.
const HOOK: u8 = 0x80;

/// Encodes a request. `number` tells its result from those of earlier requests.
pub fn encode_request(request: Request, number: u8) -> [u8; 2] {
    let what = match request {
        Request::Sync(command) => command as u8,
        Request::Hook(HookCall { state, previous }) => {
            HOOK | previous.map_or(0, |previous| previous as u8 + 1) << 2 | state as u8
        }
    };
    [what, number]
}

/// Decodes a request and its number.
pub fn decode_request(bytes: &[u8]) -> Option<(Request, u8)> {
    let [what, number] = *bytes else { return None };
    let request = if what & HOOK == 0 {
        Request::Sync(*SyncCommand::ALL.get(usize::from(what))?)
    } else {
        let state = |place: u8| HookState::ALL.get(usize::from(place)).copied();
        let previous = match (what & !HOOK) >> 2 {
            0 => None,
            place => Some(state(place - 1)?),
        };
        Request::Hook(HookCall { state: state(what & 3)?, previous })
    };
    Some((request, number))
}

/// Encodes a message. A line longer than [`MAX_LINE`] is cut.
pub fn encode_message(message: &Message<'_>) -> Datagram {
    let mut bytes = Datagram::new();
    let mut push = |more: &[u8]| {
        let _ = bytes.extend_from_slice(more);
    };
    match message {
        Message::Printed(line) => {
            push(&[0]);
            push(line.get(..MAX_LINE).unwrap_or(line));
        }
        Message::Ended { number, end, dropped } => {
            let [kind, value] = encode_result(*end);
            push(&[1, *number, kind, value]);
            push(&dropped.to_ne_bytes());
        }
        Message::Restarted(None) => push(&[2]),
        Message::Restarted(Some(number)) => push(&[2, *number]),
    }
    bytes
}

/// Decodes a message.
pub fn decode_message(bytes: &[u8]) -> Option<Message<'_>> {
    match bytes {
        [0, line @ ..] if line.len() <= MAX_LINE => Some(Message::Printed(line)),
        [1, number, kind, value, dropped @ ..] => {
            let dropped = u32::from_ne_bytes(dropped.try_into().ok()?);
            Some(Message::Ended { number: *number, end: decode_result(*kind, *value)?, dropped })
        }
        [2] => Some(Message::Restarted(None)),
        [2, number] => Some(Message::Restarted(Some(*number))),
        _ => None,
    }
}

/// How a command ended, as two bytes.
pub fn encode_result(end: CommandResult) -> [u8; 2] {
    let byte = |errno: Errno| u8::try_from(errno.0).unwrap_or(u8::MAX);
    match end {
        CommandResult::Exited(code) => [0, code],
        CommandResult::Signalled(signal) => [1, signal],
        CommandResult::TimedOut => [2, 0],
        CommandResult::NotStarted(errno) => [3, byte(errno)],
        CommandResult::NotConfigured(errno) => [4, byte(errno)],
        CommandResult::NotConfined(errno) => [5, byte(errno)],
        CommandResult::Aborted => [6, 0],
    }
}

/// How a command ended, from two bytes.
pub fn decode_result(kind: u8, value: u8) -> Option<CommandResult> {
    let errno = Errno(value.into());
    Some(match kind {
        0 => CommandResult::Exited(value),
        1 => CommandResult::Signalled(value),
        2 if value == 0 => CommandResult::TimedOut,
        3 => CommandResult::NotStarted(errno),
        4 => CommandResult::NotConfigured(errno),
        5 => CommandResult::NotConfined(errno),
        6 if value == 0 => CommandResult::Aborted,
        _ => return None,
    })
}

/// The names in `directory` by which a configuration of conntrackd may reach the control socket: the first
/// component below it of any path behind the word `Path`, wherever that stands.
pub fn sockets<'a>(configuration: &'a [u8], directory: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"\"{}".contains(byte);
    let mut words = configuration.split(is_between).filter(|word| !word.is_empty());
    let within = move |path: &'a [u8]| {
        let rest = path.strip_prefix(directory)?.strip_prefix(b"/")?;
        rest.split(|byte| *byte == b'/').find(|name| !matches!(*name, b"" | b"."))
    };
    core::iter::from_fn(move || {
        words.find(|word| *word == b"Path")?;
        words.next()
    })
    .filter_map(within)
    .filter(|name| *name != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that can be asked for.
    fn requests() -> impl Iterator<Item = Request> {
        let told = [None].into_iter().chain(HookState::ALL.map(Some));
        let calls = told.flat_map(|previous| {
            HookState::ALL.map(|state| Request::Hook(HookCall { state, previous }))
        });
        SyncCommand::ALL.map(Request::Sync).into_iter().chain(calls)
    }

    #[test]
    fn requests_arrive_as_sent() {
        for (number, request) in (0..).zip(requests()) {
            assert_eq!(decode_request(&encode_request(request, number)), Some((request, number)));
        }
    }

    /// What the log calls them is what operators search it for.
    #[test]
    fn helpers_keep_their_names() {
        let names = [HelperKind::Conntrackd, HelperKind::Hook].map(HelperKind::name);
        assert_eq!(names, ["conntrackd", "hook"]);
    }

    #[test]
    fn nothing_else_is_a_request() {
        let known = (0..=255).filter(|byte| decode_request(&[*byte, 0]).is_some());
        assert!(known.eq(requests().map(|request| encode_request(request, 0)[0])));
        for junk in [&[][..], &[0], &[0x80], &[0, 0, 0]] {
            assert_eq!(decode_request(junk), None);
        }
    }

    #[test]
    fn messages_arrive_as_sent() {
        let ends = [
            CommandResult::Exited(0),
            CommandResult::Exited(255),
            CommandResult::Signalled(9),
            CommandResult::TimedOut,
            CommandResult::NotStarted(Errno(2)),
            CommandResult::NotConfigured(Errno(40)),
            CommandResult::NotConfined(Errno(1)),
            CommandResult::Aborted,
        ];
        let ends = ends.map(|end| Message::Ended { number: 7, end, dropped: 1_000_000 });
        let others = [
            Message::Printed(b"a line"),
            Message::Printed(b""),
            Message::Printed(&[b'a'; MAX_LINE]),
            Message::Restarted(None),
            Message::Restarted(Some(7)),
        ];
        for message in ends.into_iter().chain(others) {
            assert_eq!(decode_message(&encode_message(&message)), Some(message));
        }
        let cut = encode_message(&Message::Printed(&[b'a'; MAX_LINE + 1]));
        assert_eq!(decode_message(&cut), Some(Message::Printed(&[b'a'; MAX_LINE])));
    }

    #[test]
    fn nothing_else_is_a_message() {
        for junk in [
            &[][..],
            &[1],
            &[1, 0, 0, 0, 0, 0, 0],
            &[1, 0, 2, 1, 0, 0, 0, 0],
            &[1, 0, 6, 1, 0, 0, 0, 0],
            &[1, 0, 7, 0, 0, 0, 0, 0],
            &[2, 0, 0],
            &[3],
            &[0; MAX_LINE + 2],
        ] {
            assert_eq!(decode_message(junk), None);
        }
    }

    fn names(configuration: &str) -> Vec<&[u8], 8> {
        sockets(configuration.as_bytes(), b"/var/ha").collect()
    }

    #[test]
    fn sockets_are_those_in_the_directory() {
        let usual = "General {\n LockFile /var/ha/lock\n UNIX {\n  Path /var/ha/ctl\n }\n}\n";
        assert_eq!(names(usual), [b"ctl"]);
        assert_eq!(names("UNIX{Path\t/var/ha/./sub/ctl}"), [b"sub"]);
        let none =
            "Path Path /etc/x Path /var/ha Path /var/hard/ctl Path /var/ha/ Path /var/ha/../x Path";
        assert_eq!(names(none), [b""; 0]);
    }
}
