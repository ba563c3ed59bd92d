//! What can become of an attempt to tell the agent.

use crate::errno::Errno;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no socket at the path (`ENOENT`).
    NoSocket,
    /// Nobody listens on the socket (`ECONNREFUSED`).
    Refused,
    /// The agent lets too many wait already (`EAGAIN`).
    BacklogFull,
    /// The socket may not be used (`EACCES`, `EPERM`).
    NoPermission,
    /// Somebody listens on the socket who should not: a process of this user.
    Untrusted(u32),
    /// The reply did not come in time.
    TimedOut,
    /// The agent closed before the end of a status line.
    ClosedEarly,
    /// The reply is no HTTP/1.
    Malformed,
    /// The agent answered with this status instead of 200.
    Status(u16),
    /// Any other error of the socket.
    Socket(Errno),
}

impl Failure {
    /// How many kinds there are.
    pub const KINDS: usize = 10;

    /// The number of its kind, less than [`Failure::KINDS`].
    #[must_use]
    pub fn kind(self) -> usize {
        match self {
            Self::NoSocket => 0,
            Self::Refused => 1,
            Self::BacklogFull => 2,
            Self::NoPermission => 3,
            Self::Untrusted(_) => 4,
            Self::TimedOut => 5,
            Self::ClosedEarly => 6,
            Self::Malformed => 7,
            Self::Status(_) => 8,
            Self::Socket(_) => 9,
        }
    }

    /// Whether an agent that does so may be restarting.
    pub(super) fn is_outage(self) -> bool {
        matches!(self, Self::NoSocket | Self::Refused | Self::ClosedEarly | Self::TimedOut)
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The agent answered 200; it may still be sending the rest.
    Delivered,
    /// After that, the agent has closed.
    Closed,
    /// It did not succeed, and the connection is closed.
    Failed(Failure),
}
