//! The channel to the privileged process that runs conntrackd, a message in each datagram; and as much of
//! conntrackd's configuration as has to be understood.

use heapless::Vec;

use crate::errno::Errno;
use crate::monitor::{CommandResult, MAX_LINE, SyncCommand};

/// A message to the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The command has printed this line, or a piece of it.
    Printed(&'a [u8]),
    /// The command that was asked for with this number has ended.
    Ended {
        /// The number.
        number: u8,
        /// How it ended.
        end: CommandResult,
        /// How many bytes of its output were thrown away.
        dropped: u32,
    },
    /// The process was killed and begun anew, and with it a command under way, of this number.
    Restarted(Option<u8>),
}

/// A message as it is sent.
pub type Datagram = Vec<u8, { MAX_LINE + 1 }>;

/// What asks for a command: its place in [`SyncCommand::ALL`], and the number by which to answer.
pub fn ask(command: SyncCommand, number: u8) -> [u8; 2] {
    let place = SyncCommand::ALL.iter().position(|known| *known == command);
    [place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX), number]
}

/// The command that is asked for, and its number. There is no other than these.
pub fn asked(bytes: &[u8]) -> Option<(SyncCommand, u8)> {
    match bytes {
        [place, number] => Some((*SyncCommand::ALL.get(usize::from(*place))?, *number)),
        _ => None,
    }
}

/// Puts a message into bytes. A line longer than [`MAX_LINE`] is cut.
pub fn tell(message: &Message<'_>) -> Datagram {
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

/// The message in the bytes.
pub fn told(bytes: &[u8]) -> Option<Message<'_>> {
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

/// The names in `directory` by which a configuration of conntrackd may reach the control socket: what
/// follows there in any path behind the word `Path`, wherever that stands.
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

    #[test]
    fn commands_arrive_as_they_were_asked_for() {
        for (number, command) in (0..).zip(SyncCommand::ALL) {
            assert_eq!(asked(&ask(command, number)), Some((command, number)));
        }
    }

    #[test]
    fn nothing_else_is_a_command() {
        for byte in 6..=255 {
            assert_eq!(asked(&[byte, 0]), None);
        }
        for junk in [&[][..], &[0], &[0, 0, 0]] {
            assert_eq!(asked(junk), None);
        }
    }

    #[test]
    fn messages_arrive_as_they_were_told() {
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
            assert_eq!(told(&tell(&message)), Some(message));
        }
        let cut = tell(&Message::Printed(&[b'a'; MAX_LINE + 1]));
        assert_eq!(told(&cut), Some(Message::Printed(&[b'a'; MAX_LINE])));
    }

    #[test]
    fn nothing_else_is_a_message() {
        for junk in [
            &[][..],
            &[1],
            &[1, 0, 0, 0, 0, 0, 0],
            &[1, 0, 2, 1, 0, 0, 0, 0],
            &[1, 0, 7, 0, 0, 0, 0, 0],
            &[2, 0, 0],
            &[3],
            &[0; MAX_LINE + 2],
        ] {
            assert_eq!(told(junk), None);
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
