//! The metrics file, in the text format of Prometheus (`docs/instrumenting/exposition_formats.md` in its
//! repository `docs`). The manual page lists the metrics.

use core::fmt::{self, Display, Formatter, Write};
use std::fs::File;
use std::path::Path;

use heapless::String;
use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;

use crate::errno::Errno;
use crate::monitor::{Failure, State, Status, Trouble};
use crate::sys::atomic_file::AtomicFile;
use crate::sys::files::{is_at, is_full};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;

/// Room for the longest text in bytes: 60 samples with labels of 250 bytes, and what they mean.
const MAX_LEN: usize = 20 * 1024;

/// The file of `--metrics-file`. Dropping it removes the file, as the figures of an ended daemon are stale.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    file: AtomicFile,
    labels: std::string::String,
    /// The last file written. It stays open for its lock, and so that no other file gets its inode number.
    written: Option<File>,
}

impl MetricsFile {
    /// Prepares the path and the labels, and writes nothing yet.
    pub fn new(path: &Path, labels: std::string::String) -> Result<Self, Errno> {
        Ok(Self { file: AtomicFile::new(path)?, labels, written: None })
    }

    /// Removes a killed predecessor's figures, which would stay for as long as a start fails.
    pub fn discard(&self) {
        self.file.discard();
    }

    /// Writes the current figures, or on an error removes the old ones, as a missing file is noticed. `EEXIST` if the file
    /// belongs to a running daemon that was started later.
    // Its text must not be in the frame of `dispatch`, whose pages each daemon keeps.
    #[inline(never)]
    pub fn write(&mut self, status: &Status, changed_at: u64) -> Result<(), Errno> {
        if self.written.as_ref().is_some_and(|written| self.file.is_taken(written)) {
            return Err(NixErrno::EEXIST.into());
        }
        let mut text = String::<MAX_LEN>::new();
        render(&mut text, status, changed_at, &self.labels).map_err(|_| NixErrno::EMSGSIZE)?;
        let replace = || self.file.replace(text.as_bytes(), OFlag::O_WRONLY);
        let replaced = replace().or_else(|errno| {
            let Some(written) = &self.written else {
                self.file.discard();
                return Err(errno);
            };
            self.file.remove(written);
            // It stays open, but on a full disk the new one needs its room.
            if is_full(errno) && written.set_len(0).is_ok() { replace() } else { Err(errno) }
        });
        self.written = Some(replaced?);
        Ok(())
    }

    /// Returns whether another process has removed the file, or replaced it by one that no instance has.
    pub fn is_lost(&self) -> bool {
        let is_lost = |own| is_at(&self.file.path, own) != Ok(true) && !self.file.is_taken(own);
        self.written.as_ref().is_some_and(is_lost)
    }
}

impl Drop for MetricsFile {
    /// Removes the file, unless a daemon that was started later has replaced it.
    fn drop(&mut self) {
        if let Some(written) = &self.written {
            self.file.remove(written);
        }
    }
}

/// Returns the labels that every sample has.
pub fn labels(router_id: &str, interface: &InterfaceName, vip: &Cidr) -> std::string::String {
    let (router_id, interface) = (escaped(router_id), escaped(interface));
    format!(r#"router_id="{router_id}",interface="{interface}",vip="{vip}""#)
}

/// Writes the text. `changed_at` is the Unix time of the last change of state, in seconds, or 0 if unknown.
///
/// # Errors
/// If `text` has no room.
pub fn render(text: &mut dyn Write, status: &Status, changed_at: u64, labels: &str) -> fmt::Result {
    let version = env!("CARGO_PKG_VERSION");
    write_header(text, "build_info", "The version, with the value 1.")?;
    writeln!(text, "keepwatch_build_info{{{labels},version=\"{version}\"}} 1")?;
    for (name, help, value) in figures(status, changed_at) {
        if !is_known(name, status, changed_at) {
            continue;
        }
        write_header(text, name, help)?;
        writeln!(text, "keepwatch_{name}{{{labels}}} {value}")?;
    }
    let name = "notification_failures_total";
    write_header(text, name, "Attempts to notify the agent that failed.")?;
    for ((kind, _), failures) in Failure::KINDS.iter().zip(status.counters.notification_failures) {
        writeln!(text, "keepwatch_{name}{{{labels},kind=\"{kind}\"}} {failures}")?;
    }
    write_header(text, "trouble", "What is wrong, with the value 1.")?;
    for trouble in status.troubles.into_iter().flatten() {
        let (severity, trouble) = (trouble.severity(), escaped(trouble));
        let labels = format_args!(r#"{labels},severity="{severity}",trouble="{trouble}""#);
        writeln!(text, "keepwatch_trouble{{{labels}}} 1")?;
    }
    Ok(())
}

/// Returns whether the value of a figure is known: "no" and 0 would claim more.
pub(crate) fn is_known(name: &str, status: &Status, changed_at: u64) -> bool {
    match name {
        "split_brain" | "claims_total" => status.listens,
        "last_change_timestamp_seconds" => changed_at > 0,
        _ => true,
    }
}

/// Escapes the value of a label.
fn escaped(value: impl Display) -> impl Display {
    fmt::from_fn(move |f| write!(Escape(f), "{value}"))
}

struct Escape<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| match char {
            '"' | '\\' => write!(self.0, "\\{char}"),
            _ => self.0.write_char(char),
        })
    }
}

fn write_header(text: &mut dyn Write, name: &str, help: &str) -> fmt::Result {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    writeln!(text, "# HELP keepwatch_{name} {help}\n# TYPE keepwatch_{name} {kind}")
}

/// A metric's name, its help text and its value.
pub(crate) type Figure = (&'static str, &'static str, u64);

/// Returns the metrics without labels of their own.
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
        ("ignored_links", "Links beyond the room for them.", c.ignored_links),
        ("claims_total", "Claims of the present VIP by other stations.", c.claims),
        ("duplicate_address", "Whether the VIP failed duplicate address detection.", duplicate),
        ("misplaced_address", "Whether the VIP's address is in the wrong place.", misplaced),
        ("netlink_events_total", "Netlink messages about addresses and links.", c.events),
        ("netlink_overruns_total", "Times that netlink events were lost.", c.overruns),
        ("netlink_malformed_total", "Netlink messages that could not be read.", c.malformed),
        ("netlink_foreign_total", "Netlink messages not from the kernel.", c.foreign),
        ("dumps_total", "Netlink dumps.", c.dumps),
        ("dump_failures_total", "Netlink dumps that failed.", c.dump_failures),
        ("metrics_write_failures_total", "Writes of this file that failed.", c.metrics_failures),
        ("split_brain", "Whether another station claims the present VIP.", split_brain),
    ]
}
