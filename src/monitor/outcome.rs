//! The outcomes of an attempt to notify the agent.

use crate::errno::Errno;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no socket at the path (`ENOENT`).
    NoSocket,
    /// No process listens on the socket (`ECONNREFUSED`).
    Refused,
    /// The agent's backlog is full (`EAGAIN`).
    BacklogFull,
    /// Access to the socket is denied (`EACCES`, `EPERM`).
    NoPermission,
    /// An untrusted process listens on the socket; this is its user.
    Untrusted(u32),
    /// The reply did not come in time.
    TimedOut,
    /// The agent closed before the end of a status line.
    ClosedEarly,
    /// The reply is not HTTP/1.
    Malformed,
    /// The agent answered with this status instead of 200.
    Status(u16),
    /// Any other error of the socket.
    Socket(Errno),
}

impl Failure {
    /// One of each kind, with the kind's name.
    pub const KINDS: [(&'static str, Self); 10] = [
        ("no_socket", Self::NoSocket),
        ("refused", Self::Refused),
        ("backlog_full", Self::BacklogFull),
        ("no_permission", Self::NoPermission),
        ("untrusted", Self::Untrusted(0)),
        ("timed_out", Self::TimedOut),
        ("closed_early", Self::ClosedEarly),
        ("malformed", Self::Malformed),
        ("status", Self::Status(0)),
        ("socket", Self::Socket(Errno(0))),
    ];

    /// Returns whether the failure is typical of a restart of the agent.
    pub(super) fn is_outage(self) -> bool {
        matches!(self, Self::NoSocket | Self::Refused | Self::ClosedEarly | Self::TimedOut)
    }

    /// Returns whether the agent may have read the request.
    pub(super) fn follows_request(self) -> bool {
        matches!(self, Self::TimedOut | Self::ClosedEarly | Self::Malformed | Self::Status(_))
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The agent answered 200. It may still be sending the rest of its reply.
    Delivered {
        /// The last 200 came over another socket: the agent has been restarted.
        by_another: bool,
    },
    /// The agent closed the connection after its 200.
    Closed,
    /// The attempt failed, and the connection is closed.
    Failed(Failure),
}
