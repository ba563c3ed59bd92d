//! What the metrics file says, as Prometheus reads it: see the manual page.

use std::fmt::Display;

use crate::errno::Errno;
use crate::monitor::{Failure, State, Status};
use crate::wire::prometheus::{escape, render};

/// Declares what the file says: of each metric the name, the help, and what its lines have beside the labels that
/// all have.
macro_rules! metrics {
    (
        |$status:ident, $changed_at:ident|
        $($name:literal $help:literal { $($label:expr => $value:expr),+ })+
    ) => {
        const FAMILIES: &str =
            concat!($($name, "\t", $help, $("\t", $label,)+ "\n"),+);

        /// In their order.
        fn values($status: &Status, $changed_at: u64) -> impl AsRef<[u64]> {
            [$($($value),+),+]
        }
    };
}

metrics! {
    |status, changed_at|
    "build_info" "The version, with the value 1." {
        concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"") => 1
    }
    "active" "Whether the VIP is on the interface." {
        "" => (status.state == Some(State::Active)).into()
    }
    "last_change_timestamp_seconds" "When the state last changed." { "" => changed_at }
    "transitions_total" "Changes of state, the initial one included." {
        "" => status.counters.transitions
    }
    "state_file_writes_total" "Writes of the state file." { "" => status.counters.writes }
    "state_file_write_failures_total" "Writes of the state file that failed." {
        "" => status.counters.write_failures
    }
    "undelivered" "Whether the agent has yet to answer 200 for the state." {
        "" => status.undelivered.is_some().into()
    }
    "notifications_total" "Notifications that the agent answered with 200." {
        "" => status.counters.notifications
    }
    "notification_failures_total" "Attempts to notify the agent that failed." {
        "kind=\"no_socket\"" => failures(status, Failure::NoSocket),
        "kind=\"refused\"" => failures(status, Failure::Refused),
        "kind=\"backlog_full\"" => failures(status, Failure::BacklogFull),
        "kind=\"no_permission\"" => failures(status, Failure::NoPermission),
        "kind=\"untrusted\"" => failures(status, Failure::Untrusted(0)),
        "kind=\"timed_out\"" => failures(status, Failure::TimedOut),
        "kind=\"closed_early\"" => failures(status, Failure::ClosedEarly),
        "kind=\"malformed\"" => failures(status, Failure::Malformed),
        "kind=\"status\"" => failures(status, Failure::Status(0)),
        "kind=\"socket\"" => failures(status, Failure::Socket(Errno(0)))
    }
    "conntrackd_commands_total" "Commands of conntrackd." { "" => status.counters.commands }
    "conntrackd_command_failures_total" "Commands of conntrackd that failed." {
        "" => status.counters.command_failures
    }
    "hook_runs_total" "Runs of the hook." { "" => status.counters.hook_runs }
    "hook_failures_total" "Runs of the hook that failed." {
        "" => status.counters.hook_failures
    }
    "announcements_total" "Frames that announced addresses." {
        "" => status.counters.announcements
    }
    "announcement_failures_total" "Announcements that could not be sent." {
        "" => status.counters.announcement_failures
    }
    "unannounced_addresses_total" "Addresses beyond the room for them." {
        "" => status.counters.unannounced
    }
    "ignored_links_total" "Links beyond the room for them." { "" => status.counters.ignored_links }
    "claims_total" "Claims of the VIP by other stations while it was here." {
        "" => status.counters.claims
    }
    "netlink_events_total" "Netlink messages about addresses and links." {
        "" => status.counters.events
    }
    "netlink_overruns_total" "Times that netlink events were lost." {
        "" => status.counters.overruns
    }
    "netlink_malformed_total" "Netlink messages that could not be read." {
        "" => status.counters.malformed
    }
    "netlink_foreign_total" "Netlink messages not from the kernel." { "" => status.counters.foreign }
    "dumps_total" "Netlink dumps." { "" => status.counters.dumps }
    "dump_failures_total" "Netlink dumps that failed." { "" => status.counters.dump_failures }
    "metrics_write_failures_total" "Writes of this file that failed." {
        "" => status.counters.metrics_failures
    }
}

fn failures(status: &Status, failure: Failure) -> u64 {
    status.counters.notification_failures.get(failure.kind()).copied().unwrap_or_default()
}

/// The labels that every line has.
pub fn labels(router: &dyn Display, interface: &dyn Display, vip: &dyn Display) -> String {
    let mut labels = String::new();
    for (name, value) in
        [("router_id=\"", router), ("\",interface=\"", interface), ("\",vip=\"", vip)]
    {
        labels.push_str(name);
        value.to_string().chars().for_each(|c| escape(c, |c| labels.push(c)));
    }
    labels.push('"');
    labels
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
    render(FAMILIES, labels, values(status, changed_at).as_ref(), write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::{Counters, Instant};

    fn text(status: &Status, labels: &str) -> String {
        let mut text = Vec::new();
        let written: Result<(), ()> = write(status, 1_700_000_000, labels, &mut |piece| {
            text.extend_from_slice(piece);
            Ok(())
        });
        written.unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_have_labels_and_their_figures() {
        let labels = labels(&r#"a"b\c"#, &"ha0", &"fd00::1/64");
        assert_eq!(labels, r#"router_id="a\"b\\c",interface="ha0",vip="fd00::1/64""#);
        let counters = Counters {
            events: 1,
            transitions: 2,
            overruns: 3,
            malformed: 4,
            dumps: 5,
            dump_failures: 6,
            foreign: 7,
            writes: 8,
            write_failures: 9,
            notifications: 10,
            notification_failures: [20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
            metrics_failures: 11,
            announcements: 12,
            announcement_failures: 13,
            unannounced: 14,
            ignored_links: 15,
            claims: 16,
            commands: 17,
            command_failures: 18,
            hook_runs: 30,
            hook_failures: 31,
        };
        let status = Status {
            state: Some(State::Active),
            changed_at: Some(Instant::ZERO),
            undelivered: Some(State::Active),
            counters,
            ..Status::default()
        };
        let text = text(&status, &labels);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples: Vec<_> =
            lines.map(|line| line.replace(&labels, "").replace("{}", "")).collect();
        let version =
            concat!("keepwatch_build_info{,version=\"", env!("CARGO_PKG_VERSION"), "\"} 1");
        let expected = [
            version,
            "keepwatch_active 1",
            "keepwatch_last_change_timestamp_seconds 1700000000",
            "keepwatch_transitions_total 2",
            "keepwatch_state_file_writes_total 8",
            "keepwatch_state_file_write_failures_total 9",
            "keepwatch_undelivered 1",
            "keepwatch_notifications_total 10",
            "keepwatch_notification_failures_total{,kind=\"no_socket\"} 20",
            "keepwatch_notification_failures_total{,kind=\"refused\"} 21",
            "keepwatch_notification_failures_total{,kind=\"backlog_full\"} 22",
            "keepwatch_notification_failures_total{,kind=\"no_permission\"} 23",
            "keepwatch_notification_failures_total{,kind=\"untrusted\"} 24",
            "keepwatch_notification_failures_total{,kind=\"timed_out\"} 25",
            "keepwatch_notification_failures_total{,kind=\"closed_early\"} 26",
            "keepwatch_notification_failures_total{,kind=\"malformed\"} 27",
            "keepwatch_notification_failures_total{,kind=\"status\"} 28",
            "keepwatch_notification_failures_total{,kind=\"socket\"} 29",
            "keepwatch_conntrackd_commands_total 17",
            "keepwatch_conntrackd_command_failures_total 18",
            "keepwatch_hook_runs_total 30",
            "keepwatch_hook_failures_total 31",
            "keepwatch_announcements_total 12",
            "keepwatch_announcement_failures_total 13",
            "keepwatch_unannounced_addresses_total 14",
            "keepwatch_ignored_links_total 15",
            "keepwatch_claims_total 16",
            "keepwatch_netlink_events_total 1",
            "keepwatch_netlink_overruns_total 3",
            "keepwatch_netlink_malformed_total 4",
            "keepwatch_netlink_foreign_total 7",
            "keepwatch_dumps_total 5",
            "keepwatch_dump_failures_total 6",
            "keepwatch_metrics_write_failures_total 11",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn backup_without_anything_is_all_zeroes() {
        let text = text(&Status { state: Some(State::Backup), ..Status::default() }, "");
        let is_zero = |line: &&str| line.ends_with(" 0") || line.starts_with('#');
        assert_eq!(text.lines().filter(|line| !is_zero(line)).count(), 2, "{text}");
    }

    /// `UPDATE_MANUAL=1 cargo test --lib manual` writes the options only.
    #[test]
    fn manual_page_has_the_metrics() {
        let page = include_str!("../docs/keepwatch.8");
        for line in FAMILIES.lines() {
            let fields: Vec<_> = line.split('\t').collect();
            let entry = format!(".It Li keepwatch_{}\n{}\n", fields[0], fields[1]);
            assert!(page.contains(&entry), "docs/keepwatch.8 should have:\n{entry}");
        }
    }
}
