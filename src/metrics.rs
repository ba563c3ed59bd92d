//! What the metrics file says, as Prometheus reads it: see the manual page.

use std::fmt::Display;

use crate::errno::Errno;
use crate::monitor::{Failure, State, Status};
use crate::wire::prometheus::{Escaped, render};

/// Declares what the file says: each metric with its type, name and help, and what its lines have beside the labels
/// that all have.
macro_rules! metrics {
    (
        |$status:ident, $changed_at:ident|
        $($kind:literal $name:literal $help:literal { $($label:expr => $value:expr),+ })+
    ) => {
        const TEMPLATE: &str = concat!($(
            "# HELP keepwatch_", $name, " ", $help, "\n",
            "# TYPE keepwatch_", $name, " ", $kind, "\n",
            $("keepwatch_", $name, "{@", $label, "} $\n",)+
        )+);

        /// In their order.
        fn values($status: &Status, $changed_at: u64) -> impl AsRef<[u64]> {
            [$($($value),+),+]
        }
    };
}

metrics! {
    |status, changed_at|
    "gauge" "build_info" "The version, with the value 1." {
        concat!(",version=\"", env!("CARGO_PKG_VERSION"), "\"") => 1
    }
    "gauge" "active" "Whether the VIP is on the interface." {
        "" => (status.state == Some(State::Active)).into()
    }
    "gauge" "last_change_timestamp_seconds" "When the state last changed." { "" => changed_at }
    "counter" "transitions_total" "Changes of state, the initial one included." {
        "" => status.counters.transitions
    }
    "counter" "state_file_writes_total" "Writes of the state file." { "" => status.counters.writes }
    "counter" "state_file_write_failures_total" "Writes of the state file that failed." {
        "" => status.counters.write_failures
    }
    "gauge" "undelivered" "Whether the agent has yet to answer 200 for the state." {
        "" => status.undelivered.is_some().into()
    }
    "counter" "notifications_total" "Notifications that the agent answered with 200." {
        "" => status.counters.notifications
    }
    "counter" "notification_failures_total" "Attempts to notify the agent that failed." {
        ",kind=\"no_socket\"" => failures(status, Failure::NoSocket),
        ",kind=\"refused\"" => failures(status, Failure::Refused),
        ",kind=\"backlog_full\"" => failures(status, Failure::BacklogFull),
        ",kind=\"no_permission\"" => failures(status, Failure::NoPermission),
        ",kind=\"untrusted\"" => failures(status, Failure::Untrusted(0)),
        ",kind=\"timed_out\"" => failures(status, Failure::TimedOut),
        ",kind=\"closed_early\"" => failures(status, Failure::ClosedEarly),
        ",kind=\"malformed\"" => failures(status, Failure::Malformed),
        ",kind=\"status\"" => failures(status, Failure::Status(0)),
        ",kind=\"socket\"" => failures(status, Failure::Socket(Errno(0)))
    }
    "counter" "conntrackd_commands_total" "Commands of conntrackd." { "" => status.counters.commands }
    "counter" "conntrackd_command_failures_total" "Commands of conntrackd that failed." {
        "" => status.counters.command_failures
    }
    "counter" "announcements_total" "Frames that announced addresses." {
        "" => status.counters.announcements
    }
    "counter" "announcement_failures_total" "Announcements that could not be sent." {
        "" => status.counters.announcement_failures
    }
    "counter" "unannounced_addresses_total" "Addresses beyond the room for them." {
        "" => status.counters.unannounced
    }
    "counter" "ignored_links_total" "Links beyond the room for them." { "" => status.counters.ignored_links }
    "counter" "claims_total" "Claims of the VIP by other stations while it was here." {
        "" => status.counters.claims
    }
    "counter" "netlink_events_total" "Netlink messages about addresses and links." {
        "" => status.counters.events
    }
    "counter" "netlink_overruns_total" "Times that netlink events were lost." {
        "" => status.counters.overruns
    }
    "counter" "netlink_malformed_total" "Netlink messages that could not be read." {
        "" => status.counters.malformed
    }
    "counter" "netlink_foreign_total" "Netlink messages not from the kernel." { "" => status.counters.foreign }
    "counter" "dumps_total" "Netlink dumps." { "" => status.counters.dumps }
    "counter" "dump_failures_total" "Netlink dumps that failed." { "" => status.counters.dump_failures }
    "counter" "metrics_write_failures_total" "Writes of this file that failed." {
        "" => status.counters.metrics_failures
    }
}

fn failures(status: &Status, failure: Failure) -> u64 {
    status.counters.notification_failures.get(failure.kind()).copied().unwrap_or_default()
}

/// The labels that every line has.
pub fn labels(router: &dyn Display, interface: &dyn Display, vip: &dyn Display) -> String {
    let [router, interface, vip] = [router, interface, vip].map(Escaped);
    format!("router_id=\"{router}\",interface=\"{interface}\",vip=\"{vip}\"")
}

/// Writes all of it in pieces. `changed_at` is the Unix time of the last change of state, in seconds.
///
/// # Errors
/// That of `write`, after which nothing more is written.
pub fn write<E>(
    status: &Status,
    changed_at: u64,
    labels: &str,
    write: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    render(TEMPLATE, labels, values(status, changed_at).as_ref(), write)
}
