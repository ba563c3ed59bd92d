//! The words of the log. Operators and their tools search for some of these lines, so those keep
//! their exact text.

use core::fmt;

use super::{error, info, warning};
use crate::core::{ActiveWord, Command, CommandEnd, DumpEnd, Failure, Note, Stage, State, Status};
use crate::wire::http::RouterId;
use signal_hook::low_level::signal_name;
use smoltcp::wire::EthernetAddress;

/// What the lines call things.
#[derive(Debug)]
pub struct Labels {
    /// The router.
    pub router: RouterId,
    /// The active state.
    pub active: ActiveWord,
}

impl Labels {
    /// Writes the line for a note.
    pub fn note(&self, note: &Note) {
        let router = &self.router;
        let word = |state: State| state.word(self.active);
        match *note {
            Note::Initial(state) => {
                info!("Initial status of router {} is {}", router, word(state));
            }
            Note::Wrote(state) => info!("Wrote router {} state {}", router, word(state)),
            Note::NotWritten { errno, count } => {
                error!("state file not written: {}; retrying{}", errno, Times(count));
            }
            Note::Notified(state) => {
                info!("Notified agent router {}, state {}", router, word(state));
            }
            Note::AgentBack { failures } => {
                info!("agent took it after {} failed attempts", failures);
            }
            Note::NotNotified { failure, count } => {
                warning!("agent not notified: {}; retrying{}", failure, Times(count));
            }
            Note::InterfaceFound { ifindex } => info!("watched interface has index {}", ifindex),
            Note::InterfaceMissing => warning!("watched interface is not there; waiting for it"),
            Note::Overrun { count } => {
                warning!("netlink events were lost; reading everything anew{}", Times(count));
            }
            Note::Unreadable { count } => {
                error!("unreadable netlink message; reading everything anew{}", Times(count));
            }
            Note::DumpFailed { stage, end, count } => {
                error!("dump of {} failed: {}; retrying{}", stage, end, Times(count));
            }
            Note::ForeignSender { port, count } => {
                warning!("ignored a netlink message from port {}{}", port, Times(count));
            }
            Note::SplitBrain { mac, ifindex, count } => {
                let mac = EthernetAddress(mac);
                warning!(
                    "split brain: {} claims the VIP on interface index {}{}",
                    mac,
                    ifindex,
                    Times(count)
                );
            }
            Note::TooManyAddresses { total } => {
                error!("too many addresses at once: {} are not announced", total);
            }
            Note::Synced(state) => {
                // Always "primary", whatever the active word.
                let state = state.word(ActiveWord::Primary);
                info!("Synced connection tracking state on {} for router {}", state, router);
            }
            Note::CommandFailed { command, end } => {
                error!("conntrackd {}: {}", command, end);
            }
            Note::ConntrackdGone => {
                error!("conntrackd can be run no more; not syncing");
            }
            Note::NamespaceGone => error!("the network namespace has been deleted; leaving"),
            Note::Reloading => info!("SIGHUP: reading, writing and reporting everything anew"),
        }
    }

    /// Writes the block of lines for a status.
    pub fn status(&self, status: &Status) {
        let word = |state: Option<State>| state.map_or("none", |state| state.word(self.active));
        info!(
            "status: state={} undelivered={} ifindex={}",
            word(status.state),
            word(status.undelivered),
            status.ifindex.unwrap_or(0)
        );
        info!(
            "status: events={} overruns={} unreadable={} foreign={} dumps={} dump_failures={}",
            status.events,
            status.overruns,
            status.unreadable,
            status.foreign,
            status.dumps,
            status.dump_failures
        );
        info!(
            "status: transitions={} writes={} write_failures={} notifications={} notification_failures={}",
            status.transitions,
            status.writes,
            status.write_failures,
            status.notifications,
            status.notification_failures
        );
        info!(
            "status: announcements={} announcement_failures={} unannounced={} claims={} claimant={}",
            status.announcements,
            status.announcement_failures,
            status.unannounced,
            status.claims,
            EthernetAddress(status.claimant.unwrap_or_default())
        );
        info!("status: commands={} command_failures={}", status.commands, status.command_failures);
    }
}

/// How often, if it is not the first time.
struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => Ok(()),
            times => write!(f, " ({times} times since the last such line)"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("no socket (ENOENT)"),
            Self::Refused => f.write_str("nobody listens (ECONNREFUSED)"),
            Self::BacklogFull => f.write_str("backlog full (EAGAIN)"),
            Self::NoPermission => f.write_str("no permission for the socket (EACCES)"),
            Self::Untrusted(user) => write!(f, "socket belongs to user {user}, who is not trusted"),
            Self::TimedOut => f.write_str("no reply in time"),
            Self::ClosedEarly => f.write_str("closed before a reply was complete"),
            Self::Malformed => f.write_str("reply is not HTTP"),
            Self::Status(status) => write!(f, "reply has status {status}"),
            Self::Socket(errno) => errno.fmt(f),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag().to_str().unwrap_or_default())
    }
}

impl fmt::Display for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signalled(signal) => {
                write!(f, "killed by {}", signal_name((*signal).into()).unwrap_or("some signal"))
            }
            Self::TimedOut => f.write_str("killed, as it did not end in time"),
            Self::NotStarted(errno) => write!(f, "not started: {errno}"),
        }
    }
}

impl fmt::Display for DumpEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Interrupted => f.write_str("changed meanwhile"),
            Self::Unreadable => f.write_str("unreadable message"),
            Self::Failed(errno) => errno.fmt(f),
            Self::TimedOut => f.write_str("no end in time"),
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Links => "links",
            Self::Addresses => "addresses",
            Self::Others => "addresses to announce",
        })
    }
}
