//! The channel to the privileged process that runs conntrackd: one byte asks, two bytes answer.

use crate::core::{Command, CommandEnd};
use crate::errno::Errno;

/// What asks for a command: its place in [`Command::ALL`].
pub fn ask(command: Command) -> [u8; 1] {
    let place = Command::ALL.iter().position(|known| *known == command);
    [place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)]
}

/// The command that is asked for. There is no other than these.
pub fn asked(bytes: &[u8]) -> Option<Command> {
    match bytes {
        [place] => Command::ALL.get(usize::from(*place)).copied(),
        _ => None,
    }
}

/// What answers how a command ended.
pub fn answer(end: CommandEnd) -> [u8; 2] {
    match end {
        CommandEnd::Exited(code) => [0, code],
        CommandEnd::Signalled(signal) => [1, signal],
        CommandEnd::TimedOut => [2, 0],
        CommandEnd::NotStarted(errno) => [3, u8::try_from(errno.0).unwrap_or(u8::MAX)],
    }
}

/// How a command ended, by the answer.
pub fn answered(bytes: &[u8]) -> Option<CommandEnd> {
    match bytes {
        [0, code] => Some(CommandEnd::Exited(*code)),
        [1, signal] => Some(CommandEnd::Signalled(*signal)),
        [2, 0] => Some(CommandEnd::TimedOut),
        [3, errno] => Some(CommandEnd::NotStarted(Errno((*errno).into()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_arrive_as_they_were_asked_for() {
        for command in Command::ALL {
            assert_eq!(asked(&ask(command)), Some(command));
        }
    }

    #[test]
    fn nothing_else_is_a_command() {
        for byte in 6..=255 {
            assert_eq!(asked(&[byte]), None);
        }
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[0, 0]), None);
    }

    #[test]
    fn ends_arrive_as_they_were_answered() {
        let ends = [
            CommandEnd::Exited(0),
            CommandEnd::Exited(255),
            CommandEnd::Signalled(9),
            CommandEnd::TimedOut,
            CommandEnd::NotStarted(Errno(2)),
        ];
        for end in ends {
            assert_eq!(answered(&answer(end)), Some(end));
        }
        for junk in [&[][..], &[0], &[2, 1], &[4, 0], &[0, 0, 0]] {
            assert_eq!(answered(junk), None);
        }
    }
}
