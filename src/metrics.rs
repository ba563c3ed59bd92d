//! The metrics file, in the text format of Prometheus (`docs/instrumenting/exposition_formats.md` in its
//! repository `docs`). The manual page lists the metrics.

use core::fmt::{self, Write};
use std::fs::File;
use std::path::Path;

use heapless::String;
use nix::errno::Errno as NixErrno;

use crate::errno::Errno;
use crate::monitor::{Counters, Failure, State, Status};
use crate::options::Config;
use crate::sys::atomic_file::{AtomicFile, write_all};
use crate::sys::clock;

/// Room for the longest text in bytes: 45 samples with labels of 300 bytes.
const MAX_LEN: usize = 24 * 1024;

/// The file of `--metrics-file`. It is removed when this is dropped, as figures of a daemon that has ended are
/// not true.
#[derive(Debug)]
pub struct MetricsFile {
    file: AtomicFile,
    labels: std::string::String,
    /// What was written last. It is kept open, so that no other file gets its inode number.
    written: Option<File>,
}

impl MetricsFile {
    /// Writes nothing yet. A file that cannot be written is no reason not to watch.
    ///
    /// # Errors
    /// As [`AtomicFile::new`].
    pub fn new(path: &Path, config: &Config) -> Result<Self, Errno> {
        Ok(Self { file: AtomicFile::new(path)?, labels: labels(config), written: None })
    }

    /// Makes the present figures the content.
    ///
    /// # Errors
    /// `EEXIST` if a daemon that was started later has put its own file there; else as [`AtomicFile::replace`].
    pub fn write(&mut self, status: &Status) -> Result<(), Errno> {
        if self.written.as_ref().is_some_and(|written| self.file.is_another(written)) {
            return Err(NixErrno::EEXIST.into());
        }
        // By the clock on the wall as it is now: at the time of the change it may have been wrong.
        let changed_at = status.changed_at.map(clock::unix_time).unwrap_or_default();
        let mut text = String::<MAX_LEN>::new();
        render(&mut text, status, changed_at, &self.labels).map_err(|_| NixErrno::EMSGSIZE)?;
        let written = self.file.replace(|file| write_all(file, text.as_bytes()))?;
        self.written = Some(written);
        Ok(())
    }
}

impl Drop for MetricsFile {
    /// A daemon that was started later may have put its own file there.
    fn drop(&mut self) {
        if let Some(written) = &self.written {
            self.file.remove(written);
        }
    }
}

/// The labels that every sample has.
pub fn labels(config: &Config) -> std::string::String {
    let escape =
        |value: &dyn fmt::Display| value.to_string().replace('\\', r"\\").replace('"', r#"\""#);
    let Config { router_id, interface, vip, .. } = config;
    let (router_id, interface) = (escape(router_id), escape(interface));
    format!(r#"router_id="{router_id}",interface="{interface}",vip="{vip}""#)
}

/// Writes the text. `changed_at` is the Unix time of the last change of state, in seconds.
///
/// # Errors
/// If `text` has no room.
pub fn render(text: &mut dyn Write, status: &Status, changed_at: u64, labels: &str) -> fmt::Result {
    let mut metrics = Metrics { text, labels };
    metrics.state(status, changed_at)?;
    metrics.agent(status)?;
    metrics.programs(&status.counters)?;
    metrics.neighbours(&status.counters)?;
    metrics.netlink(&status.counters)?;
    metrics.add(
        "metrics_write_failures_total",
        "Writes of this file that failed.",
        status.counters.metrics_failures,
    )
}

struct Metrics<'a> {
    text: &'a mut dyn Write,
    labels: &'a str,
}

impl Metrics<'_> {
    /// Adds a metric with one sample.
    fn add(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.begin(name, help)?;
        writeln!(self.text, "keepwatch_{name}{{{}}} {value}", self.labels)
    }

    /// Adds the lines that a metric begins with.
    fn begin(&mut self, name: &str, help: &str) -> fmt::Result {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        writeln!(self.text, "# HELP keepwatch_{name} {help}\n# TYPE keepwatch_{name} {kind}")
    }

    fn state(&mut self, status: &Status, changed_at: u64) -> fmt::Result {
        let Status { state, counters, .. } = status;
        let version = env!("CARGO_PKG_VERSION");
        self.begin("build_info", "The version, with the value 1.")?;
        writeln!(self.text, "keepwatch_build_info{{{},version=\"{version}\"}} 1", self.labels)?;
        let is_active = *state == Some(State::Active);
        self.add("active", "Whether the VIP is on the interface.", is_active.into())?;
        self.add("last_change_timestamp_seconds", "When the state last changed.", changed_at)?;
        let help = "Changes of state, the initial one included.";
        self.add("transitions_total", help, counters.transitions)?;
        self.add("state_file_writes_total", "Writes of the state file.", counters.writes)?;
        let help = "Writes of the state file that failed.";
        self.add("state_file_write_failures_total", help, counters.write_failures)
    }

    fn agent(&mut self, status: &Status) -> fmt::Result {
        let Status { undelivered, counters, .. } = status;
        let help = "Whether the agent has yet to answer 200 for the state.";
        self.add("undelivered", help, undelivered.is_some().into())?;
        let help = "Notifications that the agent answered with 200.";
        self.add("notifications_total", help, counters.notifications)?;
        let name = "notification_failures_total";
        self.begin(name, "Attempts to notify the agent that failed.")?;
        for (kind, failure) in [
            ("no_socket", Failure::NoSocket),
            ("refused", Failure::Refused),
            ("backlog_full", Failure::BacklogFull),
            ("no_permission", Failure::NoPermission),
            ("untrusted", Failure::Untrusted(0)),
            ("timed_out", Failure::TimedOut),
            ("closed_early", Failure::ClosedEarly),
            ("malformed", Failure::Malformed),
            ("status", Failure::Status(0)),
            ("socket", Failure::Socket(Errno(0))),
        ] {
            let failures = counters.notification_failures.get(failure.kind()).unwrap_or(&0);
            writeln!(self.text, "keepwatch_{name}{{{},kind=\"{kind}\"}} {failures}", self.labels)?;
        }
        Ok(())
    }

    fn programs(&mut self, counters: &Counters) -> fmt::Result {
        self.add("conntrackd_commands_total", "Commands of conntrackd.", counters.commands)?;
        let help = "Commands of conntrackd that failed.";
        self.add("conntrackd_command_failures_total", help, counters.command_failures)?;
        self.add("hook_runs_total", "Runs of the hook.", counters.hook_runs)?;
        self.add("hook_failures_total", "Runs of the hook that failed.", counters.hook_failures)
    }

    fn neighbours(&mut self, counters: &Counters) -> fmt::Result {
        let help = "Frames that announced addresses.";
        self.add("announcements_total", help, counters.announcements)?;
        let help = "Announcements that could not be sent.";
        self.add("announcement_failures_total", help, counters.announcement_failures)?;
        let help = "Addresses beyond the room for them.";
        self.add("unannounced_addresses_total", help, counters.unannounced)?;
        let help = "Links beyond the room for them.";
        self.add("ignored_links_total", help, counters.ignored_links)?;
        let help = "Claims of the VIP by other stations while it was here.";
        self.add("claims_total", help, counters.claims)
    }

    fn netlink(&mut self, counters: &Counters) -> fmt::Result {
        let help = "Netlink messages about addresses and links.";
        self.add("netlink_events_total", help, counters.events)?;
        let help = "Times that netlink events were lost.";
        self.add("netlink_overruns_total", help, counters.overruns)?;
        let help = "Netlink messages that could not be read.";
        self.add("netlink_malformed_total", help, counters.malformed)?;
        let help = "Netlink messages not from the kernel.";
        self.add("netlink_foreign_total", help, counters.foreign)?;
        self.add("dumps_total", "Netlink dumps.", counters.dumps)?;
        self.add("dump_failures_total", "Netlink dumps that failed.", counters.dump_failures)
    }
}
