//! How values read in the log, once for both its forms.

use core::fmt;

use signal_hook::low_level::signal_name;

#[cfg(feature = "defmt")]
use super::line::Line;
use crate::monitor::{CommandResult, Dump, DumpResult, Failure, HookState, SyncCommand};
use crate::wire::rtnl::Mac;

/// A value as it reads in a line; in frames, too, it is text.
pub(crate) struct DisplayArg<T>(pub(crate) T);

#[cfg(not(feature = "defmt"))]
impl<T: fmt::Display> fmt::Display for DisplayArg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "defmt")]
impl<T: fmt::Display> defmt::Format for DisplayArg<T> {
    fn format(&self, f: defmt::Formatter<'_>) {
        format(&self.0, f);
    }
}

// Once in the program, and not for every type.
#[cfg(feature = "defmt")]
fn format(value: &dyn fmt::Display, f: defmt::Formatter<'_>) {
    use core::fmt::Write;
    let mut text = Line::<{ super::MAX_LINE * 3 / 4 }>::default();
    // What is too long is cut.
    let _ = write!(text, "{value}");
    // Nested in a value that is logged with `{:?}`, it would be quoted without this hint.
    defmt::write!(f, "{=str:a}", text.as_str());
}

/// A value that has a text of its own in the log.
pub(super) struct Describe<T>(pub(super) T);

macro_rules! describe {
    ($type:ty { $($pattern:pat => $text:literal $(, $argument:expr)*;)+ }) => {
        #[cfg(not(feature = "defmt"))]
        impl fmt::Display for Describe<$type> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 { $($pattern => write!(f, $text $(, $argument)*),)+ }
            }
        }

        #[cfg(feature = "defmt")]
        impl defmt::Format for Describe<$type> {
            fn format(&self, f: defmt::Formatter<'_>) {
                match self.0 { $($pattern => defmt::write!(f, $text $(, $argument)*),)+ }
            }
        }
    };
}

/// A number of occurrences.
pub(super) struct Times(u32);

/// The end of a line that stands for several occurrences.
pub(super) fn times(count: u32) -> Describe<Times> {
    Describe(Times(count))
}

describe! { Times {
    Times(0 | 1) => "";
    Times(times) => " ({} times since last logged)", times;
} }

/// A number of failures before a success.
pub(super) struct Retries(u32);

/// What a line of success ends with.
pub(super) fn retries(failures: u32) -> Describe<Retries> {
    Describe(Retries(failures))
}

describe! { Retries {
    Retries(0) => "";
    Retries(failures) => " after {} failed runs", failures;
} }

describe! { Mac {
    [m0, m1, m2, m3, m4, m5] => "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m0, m1, m2, m3, m4, m5;
} }

describe! { Failure {
    Failure::NoSocket => "no socket (ENOENT)";
    Failure::Refused => "connection refused (ECONNREFUSED)";
    Failure::BacklogFull => "backlog full (EAGAIN)";
    Failure::NoPermission => "permission denied (EACCES)";
    Failure::Untrusted(user) => "socket owned by untrusted user {}", user;
    Failure::TimedOut => "reply timed out";
    Failure::ClosedEarly => "connection closed before a complete reply";
    Failure::Malformed => "reply is not HTTP";
    Failure::Status(status) => "reply has status {}", status;
    Failure::Socket(errno) => "{}", DisplayArg(errno);
} }

describe! { SyncCommand {
    command => "{}", command.flag().to_str().unwrap_or_default();
} }

describe! { HookState {
    state => "{}", state.word().to_str().unwrap_or_default();
} }

describe! { CommandResult {
    CommandResult::Exited(code) => "exit code {}", code;
    CommandResult::Signalled(signal) =>
        "killed by {}", signal_name(i32::from(signal)).unwrap_or("some signal");
    CommandResult::TimedOut => "timed out and killed";
    CommandResult::NotStarted(errno) => "not started: {}", DisplayArg(errno);
    CommandResult::NotConfigured(errno) => "not started: configuration: {}", DisplayArg(errno);
    CommandResult::NotConfined(errno) => "not started: cannot be confined: {}", DisplayArg(errno);
    CommandResult::Aborted => "aborted, as its helper was killed";
} }

describe! { DumpResult {
    DumpResult::Complete => "complete";
    DumpResult::Interrupted => "interrupted by a change";
    DumpResult::Malformed => "malformed message";
    DumpResult::Failed(errno) => "{}", DisplayArg(errno);
    DumpResult::TimedOut => "timed out";
} }

describe! { Dump {
    Dump::Links => "links";
    Dump::Interface => "the watched interface";
    Dump::Addresses(_) => "addresses";
    Dump::Others(_) => "addresses to announce";
} }
