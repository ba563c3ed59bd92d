//! The texts of values in the log.

use core::fmt::{self, Display, Formatter};
use std::path::Path;

use nix::unistd::Uid;
use signal_hook::low_level::signal_name;

use crate::errno::Errno;
use crate::helper::COMMAND_TIMEOUT;
use crate::metrics::{Figure, is_known};
use crate::monitor::{AGENT_TIMEOUT, Answer, CommandResult, Failure, Question, Status};
use crate::sys::own_file::Refusal;

/// Returns a suffix for a line that stands for several occurrences.
pub(super) fn times(count: u32) -> impl Display {
    fmt::from_fn(move |f| match count {
        0 | 1 => Ok(()),
        _ => write!(f, " ({count} times since last logged)"),
    })
}

/// Returns the path of a line's file or socket as a suffix, if any.
pub(super) fn at(path: Option<&Path>) -> impl Display {
    fmt::from_fn(move |f| path.map_or(Ok(()), |path| write!(f, " at {}", path.display())))
}

/// A failure that may be the denial of a right.
pub(crate) trait Denial: Display {
    fn is_denial(&self) -> bool;
}

impl Denial for Errno {
    fn is_denial(&self) -> bool {
        Errno::is_denial(*self)
    }
}

/// Its text names the user already.
impl Denial for String {
    fn is_denial(&self) -> bool {
        false
    }
}

impl Denial for Refusal {
    fn is_denial(&self) -> bool {
        matches!(self, Self::Errno(errno) if errno.is_denial())
    }
}

impl Denial for Failure {
    fn is_denial(&self) -> bool {
        *self == Self::NoPermission
    }
}

impl Denial for CommandResult {
    fn is_denial(&self) -> bool {
        let (Self::NotStarted(errno) | Self::NotConfigured(errno)) = self else { return false };
        errno.is_denial()
    }
}

/// Returns a failure, with the user who was denied something.
pub(crate) fn of_user(failure: impl Denial, user: Uid) -> impl Display {
    fmt::from_fn(move |f| {
        failure.fmt(f)?;
        if failure.is_denial() { write!(f, ", as user {user}") } else { Ok(()) }
    })
}

/// Returns the known counters among metrics, each with a space before it.
pub(super) fn counters(figures: &[Figure], status: &Status) -> impl Display {
    fmt::from_fn(|f| {
        let known = figures.iter().filter(|(name, ..)| is_known(name, status, 0));
        for (name, _, value) in known {
            if let Some(name) = name.strip_suffix("_total") {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    })
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => write!(f, "no socket (ENOENT)"),
            Self::Refused => write!(f, "connection refused (ECONNREFUSED)"),
            Self::BacklogFull => write!(f, "backlog full (EAGAIN)"),
            Self::NoPermission => write!(f, "permission denied (EACCES)"),
            Self::Untrusted(user) => write!(f, "socket owned by untrusted user {user}"),
            Self::TimedOut => write!(f, "reply timed out after {} s", AGENT_TIMEOUT.secs()),
            Self::ClosedEarly => write!(f, "connection closed before a complete reply"),
            Self::Malformed => write!(f, "reply is not HTTP"),
            Self::Status(status) => write!(f, "reply has status {status}"),
            Self::Socket(errno) => errno.fmt(f),
        }
    }
}

impl Display for CommandResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signalled(signal) => match signal_name(signal.into()) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {signal}"),
            },
            Self::Unneeded => write!(f, "no program"),
            Self::TimedOut => {
                write!(f, "timed out after {} s and killed", COMMAND_TIMEOUT.as_secs())
            }
            Self::NotStarted(errno @ Errno::NOT_FOUND) => {
                let which = "the program, or the interpreter that its first line names";
                write!(f, "not started: {errno}: {which}")
            }
            Self::NotStarted(errno) => write!(f, "not started: {errno}"),
            Self::NotConfigured(errno) => write!(f, "not started: configuration: {errno}"),
        }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => write!(f, "complete"),
            Self::Interrupted => write!(f, "interrupted by a change"),
            Self::Failed(errno) => errno.fmt(f),
        }
    }
}

impl Display for Question {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface => write!(f, "the watched interface"),
            Self::Link(ifindex) => write!(f, "interface {ifindex}"),
            Self::Addresses { only: None } => write!(f, "addresses"),
            Self::Addresses { only: Some(ifindex) } => {
                write!(f, "addresses of interface {ifindex}")
            }
            Self::Links => write!(f, "links"),
        }
    }
}
