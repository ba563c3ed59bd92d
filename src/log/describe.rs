//! How values read in the log.

use core::fmt::{self, Display, Formatter};

use signal_hook::low_level::signal_name;

use crate::metrics::Figure;
use crate::monitor::{CommandResult, Dump, DumpResult, Failure, Trouble, Troubles};
use crate::sys::interface::name_of;
use crate::wire::rtnl::Mac;

/// A value as it reads in a line. In a frame, too, it is text, without control characters and of bounded length.
pub(crate) struct DisplayArg<T>(pub(crate) T);

#[cfg(not(feature = "defmt"))]
impl<T: Display> Display for DisplayArg<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "defmt")]
impl<T: Display> defmt::Format for DisplayArg<T> {
    fn format(&self, f: defmt::Formatter<'_>) {
        use core::fmt::Write;
        let mut text = super::line::Line::<{ super::MAX_LINE * 3 / 4 }>::default();
        // What is too long is cut.
        let _ = write!(text, "{}", self.0);
        defmt::write!(f, "{=str}", text.as_str());
    }
}

/// The end of a line that stands for several occurrences.
pub(super) fn times(count: u32) -> DisplayArg<Times> {
    DisplayArg(Times(count))
}

pub(super) struct Times(u32);

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => Ok(()),
            times => write!(f, " ({times} times since last logged)"),
        }
    }
}

/// The end of a line about a success after so many failures.
pub(super) struct Retries(pub(super) u32);

impl Display for Retries {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            failures => write!(f, " after {failures} failed runs"),
        }
    }
}

/// What is wrong, behind what it is added to.
pub(crate) struct TroubleList<'a>(pub(crate) &'a Troubles);

impl Display for TroubleList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().flatten().try_for_each(|trouble| write!(f, "; {trouble}"))
    }
}

/// The counters among figures, each with a space before it.
pub(super) struct CounterList<'a>(pub(super) &'a [Figure]);

impl Display for CounterList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, _, value)| match name.strip_suffix("_total") {
            Some(name) => write!(f, " {name}={value}"),
            None => Ok(()),
        })
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SplitBrain(mac) => write!(f, "split brain: {} claims it", MacText(Some(mac))),
            Self::InterfaceAbsent => write!(f, "there is no such interface"),
            Self::Misplaced(ifindex, cidr) => match name_of(ifindex) {
                Some(name) => write!(f, "{cidr} is on {name}"),
                None => write!(f, "{cidr} is on interface {ifindex}"),
            },
            Self::DuplicateAddress => write!(f, "duplicate address detection failed"),
            Self::AgentFails => write!(f, "agent not notified"),
            Self::HookFails => write!(f, "hook fails"),
        }
    }
}

/// A MAC address in the usual form, if there is one.
pub(super) struct MacText(pub(super) Option<Mac>);

impl Display for MacText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some([m0, m1, m2, m3, m4, m5]) = self.0 else { return f.write_str("none") };
        write!(f, "{m0:02x}:{m1:02x}:{m2:02x}:{m3:02x}:{m4:02x}:{m5:02x}")
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => write!(f, "no socket (ENOENT)"),
            Self::Refused => write!(f, "connection refused (ECONNREFUSED)"),
            Self::BacklogFull => write!(f, "backlog full (EAGAIN)"),
            Self::NoPermission => write!(f, "permission denied (EACCES)"),
            Self::Untrusted(user) => write!(f, "socket owned by untrusted user {user}"),
            Self::TimedOut => write!(f, "reply timed out"),
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
            Self::Signalled(signal) => {
                write!(f, "killed by {}", signal_name(signal.into()).unwrap_or("some signal"))
            }
            Self::TimedOut => write!(f, "timed out and killed"),
            Self::NotStarted(errno) => write!(f, "not started: {errno}"),
            Self::NotConfigured(errno) => write!(f, "not started: configuration: {errno}"),
        }
    }
}

impl Display for DumpResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => write!(f, "complete"),
            Self::Interrupted => write!(f, "interrupted by a change"),
            Self::Malformed => write!(f, "malformed message"),
            Self::Failed(errno) => errno.fmt(f),
            Self::TimedOut => write!(f, "timed out"),
        }
    }
}

impl Display for Dump {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Links => "links",
            Self::Interface => "the watched interface",
            Self::Addresses(_) => "addresses",
            Self::Others(_) => "addresses to announce",
            Self::Everywhere => "all addresses",
        })
    }
}
