//! The metrics file, in the text format of Prometheus (`docs/instrumenting/exposition_formats.md` in its
//! repository `docs`). The manual page lists the metrics.

use core::fmt::{self, Write};
use std::fs::File;
use std::path::Path;

use heapless::String;
use nix::errno::Errno as NixErrno;

use crate::errno::Errno;
use crate::monitor::{Failure, State, Status, Trouble};
use crate::options::Config;
use crate::sys::atomic_file::AtomicFile;
use crate::sys::clock;
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

/// Room for the longest text in bytes: 46 samples with labels of 300 bytes.
const MAX_LEN: usize = 24 * 1024;

/// The file of `--metrics-file`. It is removed when this is dropped, as figures of a daemon that has ended are
/// not true.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    file: AtomicFile,
    labels: std::string::String,
    /// What was written last. It is kept open, so that no other file gets its inode number.
    written: Option<File>,
}

impl MetricsFile {
    /// Writes nothing yet.
    pub fn new(path: &Path, config: &Config) -> Result<Self, Errno> {
        Ok(Self {
            file: AtomicFile::new(path)?,
            labels: labels(&config.router_id, &config.interface, &config.vip),
            written: None,
        })
    }

    /// Makes the present figures the content. `EEXIST` if a daemon that was started later has put its own file there.
    pub fn write(&mut self, status: &Status) -> Result<(), Errno> {
        if self.written.as_ref().is_some_and(|written| self.file.is_another(written)) {
            return Err(NixErrno::EEXIST.into());
        }
        // By the clock on the wall as it is now: at the time of the change it may have been wrong.
        let changed_at = status.changed_at.map(clock::unix_time).unwrap_or_default();
        let mut text = String::<MAX_LEN>::new();
        render(&mut text, status, changed_at, &self.labels).map_err(|_| NixErrno::EMSGSIZE)?;
        let written = self.file.replace(text.as_bytes())?;
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
pub fn labels(router_id: &RouterId, interface: &InterfaceName, vip: &Cidr) -> std::string::String {
    let escape =
        |value: &dyn fmt::Display| value.to_string().replace('\\', r"\\").replace('"', r#"\""#);
    let (router_id, interface) = (escape(router_id), escape(interface));
    format!(r#"router_id="{router_id}",interface="{interface}",vip="{vip}""#)
}

/// Writes the text. `changed_at` is the Unix time of the last change of state, in seconds.
///
/// # Errors
/// If `text` has no room.
pub fn render(text: &mut dyn Write, status: &Status, changed_at: u64, labels: &str) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    begin(text, "build_info", "The version, with the value 1.")?;
    writeln!(text, "keepwatch_build_info{{{labels},version=\"{version}\"}} 1")?;
    for (name, help, value) in figures(status, changed_at) {
        begin(text, name, help)?;
        writeln!(text, "keepwatch_{name}{{{labels}}} {value}")?;
    }
    let name = "notification_failures_total";
    begin(text, name, "Attempts to notify the agent that failed.")?;
    for ((kind, _), failures) in Failure::KINDS.iter().zip(status.counters.notification_failures) {
        writeln!(text, "keepwatch_{name}{{{labels},kind=\"{kind}\"}} {failures}")?;
    }
    Ok(())
}

fn begin(text: &mut dyn Write, name: &str, help: &str) -> fmt::Result {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    writeln!(text, "# HELP keepwatch_{name} {help}\n# TYPE keepwatch_{name} {kind}")
}

/// A name, what it means, and its value.
pub(crate) type Figure = (&'static str, &'static str, u64);

/// All but the failed notifications, which have a label.
pub(crate) fn figures(status: &Status, changed_at: u64) -> [Figure; 27] {
    let active = (status.state == Some(State::Active)).into();
    let undelivered = status.undelivered.is_some().into();
    let hook_pending = status.hook_pending.is_some().into();
    let split_brain = status.claimant.is_some().into();
    let is = |is: fn(&Trouble) -> bool| status.troubles.iter().flatten().any(is).into();
    let duplicate = is(|trouble| *trouble == Trouble::DuplicateAddress);
    let misplaced = is(|trouble| matches!(trouble, Trouble::Misplaced(..)));
    let c = &status.counters;
    [
        ("active", "Whether the VIP is on the interface.", active),
        ("last_change_timestamp_seconds", "When the state last changed.", changed_at),
        ("transitions_total", "Changes of state, the initial one included.", c.transitions),
        ("state_file_writes_total", "Writes of the state file.", c.writes),
        ("state_file_write_failures_total", "Failed writes of the state file.", c.write_failures),
        ("undelivered", "Whether the agent has yet to answer 200 for the state.", undelivered),
        ("notifications_total", "Notifications that the agent answered with 200.", c.notifications),
        ("conntrackd_commands_total", "Commands of conntrackd.", c.commands),
        ("conntrackd_command_failures_total", "Failed commands of conntrackd.", c.command_failures),
        ("hook_pending", "Whether the hook has yet to succeed for the state.", hook_pending),
        ("hook_runs_total", "Runs of the hook.", c.hook_runs),
        ("hook_failures_total", "Runs of the hook that failed.", c.hook_failures),
        ("announcements_total", "Frames that announced addresses.", c.announcements),
        ("announcement_failures_total", "Announcements not sent.", c.announcement_failures),
        ("unannounced_addresses_total", "Addresses beyond the room for them.", c.unannounced),
        ("ignored_links_total", "Links beyond the room for them.", c.ignored_links),
        ("claims_total", "Claims of the VIP by other stations while it was here.", c.claims),
        ("duplicate_address", "Whether the VIP failed duplicate address detection.", duplicate),
        ("misplaced_address", "Whether the VIP's address is here, but not as told.", misplaced),
        ("netlink_events_total", "Netlink messages about addresses and links.", c.events),
        ("netlink_overruns_total", "Times that netlink events were lost.", c.overruns),
        ("netlink_malformed_total", "Netlink messages that could not be read.", c.malformed),
        ("netlink_foreign_total", "Netlink messages not from the kernel.", c.foreign),
        ("dumps_total", "Netlink dumps.", c.dumps),
        ("dump_failures_total", "Netlink dumps that failed.", c.dump_failures),
        ("metrics_write_failures_total", "Writes of this file that failed.", c.metrics_failures),
        ("split_brain", "Whether another station claims the VIP while it is here.", split_brain),
    ]
}
