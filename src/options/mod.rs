//! What is asked for: the command line, read and checked before anything is opened.

mod argv;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, Gid, Uid, faccessat};

use crate::log::Level;
use crate::monitor::{ActiveWord, AnnounceTiming, Duration, Renotify};
use crate::sys::netns;
use crate::sys::privileges::RunAs;
use crate::sys::trust;
use crate::sys::users::{Group, User};
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;
use argv::Arguments;

/// Name of the agent's socket in `--state_path`.
const AGENT_SOCKET: &str = "keepalived-state-change";
/// Name of the log file where none is given, as the original's.
const LOG_FILE: &str = "neutron-keepalived-state-change.log";
/// The longest path of a Unix socket: `sun_path` less its NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Netlink receive buffer in bytes: room for about 2,500 events, as the kernel doubles it.
const NETLINK_RCVBUF: usize = 1 << 20;

/// What the command line asks for.
#[derive(Debug)]
pub enum CliAction {
    /// Watch.
    Run(Config),
    /// Check whether watching would work.
    Check(Config),
    /// Print this.
    Print(String),
}

/// The command line is wrong: one line that names the option, its value and what it wants.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

/// What to watch, and how.
#[derive(Debug)]
pub struct Config {
    /// The identity sent to the agent.
    pub router_id: RouterId,
    /// The file of the network namespace to enter; none: stay in the present one.
    pub namespace: Option<PathBuf>,
    /// Where the state file is kept.
    pub conf_dir: PathBuf,
    /// The interface that carries the VIP.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
    /// The pid file; none only in the foreground.
    pub pid_file: Option<PathBuf>,
    /// The agent's socket.
    pub agent_socket: PathBuf,
    /// Do not become a daemon.
    pub foreground: bool,
    /// The word for the active state.
    pub active_word: ActiveWord,
    /// When to tell an agent that was away again.
    pub renotify: Renotify,
    /// The log file; none: standard error, if there is no syslog either.
    pub log_file: Option<PathBuf>,
    /// Log to syslog.
    pub syslog: bool,
    /// The least that is logged.
    pub log_level: Level,
    /// Netlink receive buffer in bytes.
    pub netlink_rcvbuf: usize,
    /// Have the kernel keep back events of addresses that do not matter.
    pub netlink_filter: bool,
    /// Announce addresses like this.
    pub announce: Option<AnnounceTiming>,
    /// Watch out for other stations that claim the VIP.
    pub detect_split_brain: bool,
    /// Whom to be once everything is open.
    pub identity: RunAs,
    /// Limit itself to the files that it needs.
    pub landlock: bool,
    /// Limit itself to the system calls that it needs.
    pub seccomp: bool,
    /// Run this program's sync commands on each transition.
    pub conntrackd: Option<Program>,
}

/// Reads and checks a command line without the program's name.
///
/// # Errors
/// [`UsageError`].
pub fn parse(argv: Vec<OsString>) -> Result<CliAction, UsageError> {
    let arguments = match argv::read(argv) {
        Ok(arguments) => arguments,
        Err(exit) if exit.status.is_ok() => return Ok(CliAction::Print(exit.output)),
        Err(exit) => return Err(UsageError(exit.output.trim_end().into())),
    };
    if arguments.version {
        return Ok(CliAction::Print(concat!("keepwatch ", env!("CARGO_PKG_VERSION"), "\n").into()));
    }
    if cfg!(feature = "defmt") && arguments.use_syslog {
        let why = "this build logs frames of defmt, which syslog does not take";
        return Err(UsageError(format!("--use-syslog: {why}: wants a --log-file instead")));
    }
    let config = Config::new(&arguments)?;
    Ok(if arguments.check { CliAction::Check(config) } else { CliAction::Run(config) })
}

impl Config {
    fn new(arguments: &Arguments) -> Result<Self, UsageError> {
        let foreground = arguments.foreground;
        let conf_dir = required(
            "--conf_dir",
            arguments.conf_dir.as_deref(),
            "an existing directory",
            |text| absolute(text).filter(|path| path.is_dir()),
        )?;
        let pid_file = optional("--pid_file", arguments.pid_file.as_deref(), "a path", absolute)?;
        if pid_file.is_none() && !foreground {
            return Err(missing("--pid_file", "a path, unless --foreground is given"));
        }
        let log_file = log_file(
            optional("--log-file", arguments.log_file.as_deref(), "a path", |text| {
                Some(text.into())
            })?,
            optional("--log-dir", arguments.log_dir.as_deref(), "a directory", absolute)?,
            || conf_dir.join(LOG_FILE),
            !foreground && !arguments.use_syslog,
        );
        let tempo = tempo(
            arguments.garp_master_repeat.as_deref(),
            arguments.garp_master_delay.as_deref(),
            arguments.garp_interval.as_deref(),
        )?;
        let identity = identity(arguments.user.as_deref(), arguments.group.as_deref())?;
        let announce = (!arguments.no_announce).then_some(tempo);
        Ok(Self {
            router_id: required(
                "--router_id",
                arguments.router_id.as_deref(),
                "1 to 64 printable ASCII characters without space",
                parsed,
            )?,
            namespace: optional(
                "--namespace",
                arguments.namespace.as_deref(),
                "the name of a network namespace or an absolute path",
                namespace_path,
            )?,
            interface: required(
                "--monitor_interface",
                arguments.monitor_interface.as_deref(),
                "an interface name of 1 to 15 bytes",
                |text| InterfaceName::new(text.as_bytes()).ok(),
            )?,
            vip: required(
                "--monitor_cidr",
                arguments.monitor_cidr.as_deref(),
                "an IPv4 or IPv6 address with its prefix length, such as 169.254.0.5/24",
                vip,
            )?,
            agent_socket: required(
                "--state_path",
                arguments.state_path.as_deref(),
                "the directory of the agent's socket, whose path has at most 107 bytes",
                agent_socket,
            )?,
            active_word: optional(
                "--active-word",
                arguments.active_word.as_deref(),
                "master or primary",
                active_word,
            )?
            .unwrap_or_default(),
            renotify: optional(
                "--renotify",
                arguments.renotify.as_deref(),
                "0, or 1 to 4 ascending numbers of seconds up to 86400, such as 30,120,600",
                renotify,
            )?
            .unwrap_or_else(|| [30, 120, 600].map(Duration::from_secs).into_iter().collect()),
            netlink_rcvbuf: optional(
                "--netlink-rcvbuf",
                arguments.netlink_rcvbuf.as_deref(),
                "a number of bytes from 1 to 1073741823",
                |text| parsed(text).filter(|bytes| (1..1 << 30).contains(bytes)),
            )?
            .unwrap_or(NETLINK_RCVBUF),
            detect_split_brain: arguments.detect_split_brain || !arguments.no_announce,
            announce,
            log_level: if arguments.debug { Level::Debug } else { Level::Info },
            syslog: arguments.use_syslog,
            conf_dir,
            pid_file,
            foreground,
            log_file,
            identity,
            netlink_filter: !arguments.no_netlink_filter,
            landlock: !arguments.no_landlock,
            seccomp: !arguments.no_seccomp,
            conntrackd: arguments
                .enable_conntrackd
                .then(|| find_conntrackd(&std::env::var_os("PATH").unwrap_or_default())),
        })
    }
}

impl Config {
    /// Whether frames are to be sent or heard.
    pub fn wants_packets(&self) -> bool {
        self.announce.is_some() || self.detect_split_brain
    }
}

/// How announcements are made.
fn tempo(
    repeat: Option<&str>,
    delay: Option<&str>,
    interval: Option<&str>,
) -> Result<AnnounceTiming, UsageError> {
    let default = AnnounceTiming::default();
    Ok(AnnounceTiming {
        repeat: optional("--garp_master_repeat", repeat, "a number from 1 to 100", |text| {
            parsed(text).filter(|repeat| (1..=100).contains(repeat))
        })?
        .unwrap_or(default.repeat),
        delay: optional("--garp_master_delay", delay, "seconds from 0.1 to 3600", |text| {
            seconds(text).filter(|delay| delay.total_millis() >= 100)
        })?
        .unwrap_or(default.delay),
        interval: optional("--garp_interval", interval, "seconds from 0 to 3600", seconds)?
            .unwrap_or(default.interval),
    })
}

/// A time of at most an hour in decimal seconds, to the microsecond, such as `0.001`.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
        return None;
    }
    let micros = format!("{whole}{fraction:0<6}").parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|time| *time <= Duration::from_secs(3600))
}

/// An option that must be given.
fn required<T>(
    option: &str,
    value: Option<&str>,
    wants: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, UsageError> {
    optional(option, value, wants, read)?.ok_or_else(|| missing(option, wants))
}

/// An option that may be given.
fn optional<T>(
    option: &str,
    value: Option<&str>,
    wants: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, UsageError> {
    let Some(value) = value else { return Ok(None) };
    // A NUL ends every path and name that the kernel is given.
    match read(value).filter(|_| !value.is_empty() && !value.contains('\0')) {
        Some(read) => Ok(Some(read)),
        None => Err(wrong(option, value, wants)),
    }
}

// Once in the program, and not in every place that calls the above.
#[inline(never)]
fn wrong(option: &str, value: &str, wants: &str) -> UsageError {
    UsageError(format!("{option} {value:?}: wants {wants}"))
}

#[inline(never)]
fn missing(option: &str, wants: &str) -> UsageError {
    UsageError(format!("{option} is missing: wants {wants}"))
}

fn parsed<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The daemon leaves the directory it was started in, so its paths are made absolute.
fn absolute(text: &str) -> Option<PathBuf> {
    std::path::absolute(text).ok()
}

fn namespace_path(text: &str) -> Option<PathBuf> {
    let is_name = !text.contains('/') && !matches!(text, "." | "..");
    (is_name || text.starts_with('/')).then(|| netns::path(text))
}

fn vip(text: &str) -> Option<Cidr> {
    // No interface ever has one of these.
    parsed(text)
        .filter(|vip: &Cidr| !vip.address().is_unspecified() && !vip.address().is_multicast())
}

fn agent_socket(text: &str) -> Option<PathBuf> {
    absolute(text)
        .map(|directory| directory.join(AGENT_SOCKET))
        .filter(|path| path.as_os_str().len() <= MAX_SOCKET_PATH)
}

fn active_word(text: &str) -> Option<ActiveWord> {
    match text {
        "master" => Some(ActiveWord::Master),
        "primary" => Some(ActiveWord::Primary),
        _ => None,
    }
}

/// When to tell an agent that was away again.
fn renotify(text: &str) -> Option<Renotify> {
    let mut times = Renotify::new();
    if text == "0" {
        return Some(times);
    }
    for seconds in text.split(',') {
        let after = times.last().map_or(0, Duration::secs);
        let seconds = parsed(seconds).filter(|seconds| (after + 1..=86_400).contains(seconds))?;
        times.push(Duration::from_secs(seconds)).ok()?;
    }
    Some(times)
}

/// Where to log, by the rules of the original: a relative file is in the log directory, and a log
/// directory alone gets the file of the default name.
fn log_file(
    file: Option<PathBuf>,
    directory: Option<PathBuf>,
    default: impl FnOnce() -> PathBuf,
    wanted: bool,
) -> Option<PathBuf> {
    let file = match (file, directory) {
        (Some(file), Some(directory)) => directory.join(file),
        (Some(file), None) => file,
        (None, Some(directory)) => directory.join(LOG_FILE),
        (None, None) => return wanted.then(default),
    };
    std::path::absolute(file).ok()
}

/// Whom to be. Without a group a user brings his own.
fn identity(user: Option<&str>, group: Option<&str>) -> Result<RunAs, UsageError> {
    let group = optional("--group", group, "the name or number of a group", |text| {
        let known = Group::from_name(text).ok().flatten().map(|group| group.gid);
        known.or_else(|| id(text).map(Gid::from_raw))
    })?;
    let user = optional("--user", user, "the name or number of a user", |text| {
        let by_number = || Some((Uid::from_raw(id(text)?), None));
        let entry = match id(text) {
            Some(number) => User::from_uid(Uid::from_raw(number)),
            None => User::from_name(text),
        };
        entry.ok().flatten().map(|user| (user.uid, Some(user.gid))).or_else(by_number)
    })?;
    match (user, group) {
        (None, group) => Ok(RunAs { user: None, group }),
        (Some((user, own)), group) => match group.or(own) {
            Some(group) => Ok(RunAs { user: Some(user), group: Some(group) }),
            None => Err(missing("--group", "a group for a user who is in no password file")),
        },
    }
}

/// The number of a user or group. -1 stands for none (`setresuid(2)`).
fn id(text: &str) -> Option<u32> {
    parsed(text).filter(|id| *id != u32::MAX)
}

/// What is said of a program that is not run.
pub const REFUSED: &str = "not run, as others than root may change it or what is above it";

/// conntrackd, as far as it was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is, or ought to be.
    pub path: PathBuf,
    /// One that comes first, but that others than root could put something else in the place of.
    pub refused: Option<PathBuf>,
}

/// A daemon's `PATH` may lack the directories of the system.
fn find_conntrackd(path: &OsStr) -> Program {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut refused = None;
    let found = std::env::split_paths(path)
        .chain(system)
        .map(|directory| directory.join("conntrackd"))
        .filter(|file| {
            file.is_absolute()
                && file.is_file()
                && faccessat(AT_FDCWD, file, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
        })
        .find(|file| {
            let safe = trust::is_safe(file);
            if !safe {
                refused.get_or_insert_with(|| file.clone());
            }
            safe
        });
    Program { path: found.unwrap_or("/usr/sbin/conntrackd".into()), refused }
}

#[cfg(test)]
mod tests;
