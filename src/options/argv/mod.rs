//! The command line as it is written, brought to the one form that `argh` reads.
//!
//! The callers write `--router_id=X` or `--router-id X`, pass options that mean nothing here, and
//! expect a later value to replace an earlier one.

use std::ffi::OsString;

use argh::{EarlyExit, FromArgs};

use super::UsageError;

/// An option, named as the callers write it; `argh` has it with dashes.
struct OptionSpec {
    name: &'static str,
    takes_value: bool,
    /// The original also takes it with `no` before its name.
    negatable: bool,
}

const fn value(name: &'static str) -> OptionSpec {
    OptionSpec { name, takes_value: true, negatable: false }
}

const fn switch(name: &'static str) -> OptionSpec {
    OptionSpec { name, takes_value: false, negatable: false }
}

const fn negatable(name: &'static str) -> OptionSpec {
    OptionSpec { name, takes_value: false, negatable: true }
}

/// What there is in [`Arguments`].
static OPTIONS: [OptionSpec; 30] = [
    value("--router_id"),
    value("--namespace"),
    value("--conf_dir"),
    value("--monitor_interface"),
    value("--monitor_cidr"),
    value("--pid_file"),
    value("--state_path"),
    value("--user"),
    value("--group"),
    value("--active-word"),
    value("--renotify"),
    switch("--no-announce"),
    value("--garp_master_repeat"),
    value("--garp_master_delay"),
    value("--garp_interval"),
    switch("--detect-split-brain"),
    switch("--no-netlink-filter"),
    switch("--no-landlock"),
    switch("--no-seccomp"),
    negatable("--enable_conntrackd"),
    switch("--foreground"),
    switch("--check"),
    value("--log-file"),
    value("--log-dir"),
    negatable("--use-syslog"),
    negatable("--debug"),
    negatable("--verbose"),
    value("--netlink-rcvbuf"),
    switch("--version"),
    switch("--help"),
];

/// Options of the original that are taken with their value and ignored.
const IGNORED: [&str; 2] = ["--config-file", "--config-dir"];
/// What else is ignored begins like this.
const IGNORED_PREFIX: &str = "--AGENT-";

/// Watch whether keepalived has put a virtual IP address (VIP) on an interface, keep a one-word
/// state file, and tell the agent over HTTP on a Unix socket.
#[derive(Debug, Default, FromArgs)]
#[cfg_attr(test, derive(argh::ArgsInfo))]
#[argh(help_triggers("-h", "--help"))]
#[argh(
    usage = "--router_id ID --conf_dir DIR --monitor_interface NAME --monitor_cidr CIDR --state_path DIR (--pid_file FILE | --foreground) [options]"
)]
#[argh(note = "Names may be written with _ or -, values as --name=VALUE or --name VALUE.")]
pub(super) struct Arguments {
    /// identity sent to the agent, 1 to 64 printable ASCII characters (required)
    #[argh(option)]
    pub(super) router_id: Option<String>,

    /// network namespace, by its name under /run/netns or an absolute path; default: the present one
    #[argh(option)]
    pub(super) namespace: Option<String>,

    /// directory in which the file `state` is kept (required)
    #[argh(option)]
    pub(super) conf_dir: Option<String>,

    /// interface that carries the VIP; it need not exist yet (required)
    #[argh(option)]
    pub(super) monitor_interface: Option<String>,

    /// the VIP: an IPv4 or IPv6 address with its prefix length (required)
    #[argh(option)]
    pub(super) monitor_cidr: Option<String>,

    /// pid file, locked while the daemon runs (required unless --foreground)
    #[argh(option)]
    pub(super) pid_file: Option<String>,

    /// directory of the agent's socket `keepalived-state-change` (required)
    #[argh(option)]
    pub(super) state_path: Option<String>,

    /// user to run as, by name or number
    #[argh(option)]
    pub(super) user: Option<String>,

    /// group to run as, by name or number
    #[argh(option)]
    pub(super) group: Option<String>,

    /// word for the active state, `master` or `primary`; default: master
    #[argh(option)]
    pub(super) active_word: Option<String>,

    /// seconds after which an agent that was away is told again, as it may not have known its routers
    /// yet; 0: never; default: 30,120,600
    #[argh(option)]
    pub(super) renotify: Option<String>,

    /// send no gratuitous ARP and no neighbour advertisements
    #[argh(switch)]
    pub(super) no_announce: bool,

    /// rounds of announcements for an address; default: 3
    #[argh(option)]
    pub(super) garp_master_repeat: Option<String>,

    /// seconds from one round of an address to the next; default: 2
    #[argh(option)]
    pub(super) garp_master_delay: Option<String>,

    /// seconds from the announcement of one address to that of another; default: 0.001
    #[argh(option)]
    pub(super) garp_interval: Option<String>,

    /// watch out for other stations that claim the VIP, even with --no-announce
    #[argh(switch)]
    pub(super) detect_split_brain: bool,

    /// hear of the addresses of all interfaces; for diagnosis
    #[argh(switch)]
    pub(super) no_netlink_filter: bool,

    /// allow itself every file; for a system on which Landlock goes wrong
    #[argh(switch)]
    pub(super) no_landlock: bool,

    /// allow itself every system call; for a system on which the filter goes wrong
    #[argh(switch)]
    pub(super) no_seccomp: bool,

    /// run conntrackd's sync commands on each transition
    #[argh(switch)]
    pub(super) enable_conntrackd: bool,

    /// do not become a daemon; log to standard error unless told otherwise
    #[argh(switch)]
    pub(super) foreground: bool,

    /// check the options and what they name, print what would be watched, and exit
    #[argh(switch)]
    pub(super) check: bool,

    /// log file; a relative one is in --log-dir; default as a daemon:
    /// neutron-keepalived-state-change.log where the state file is
    #[argh(option)]
    pub(super) log_file: Option<String>,

    /// directory of the log file
    #[argh(option)]
    pub(super) log_dir: Option<String>,

    /// log to the system's log
    #[argh(switch)]
    pub(super) use_syslog: bool,

    /// log every event
    #[argh(switch, short = 'd')]
    pub(super) debug: bool,

    /// accepted for the sake of old callers: it is the default
    #[argh(switch)]
    #[expect(dead_code, reason = "nothing to do for it")]
    pub(super) verbose: bool,

    /// netlink receive buffer in bytes; default: 1048576
    #[argh(option)]
    pub(super) netlink_rcvbuf: Option<String>,

    /// print the version and exit
    #[argh(switch)]
    pub(super) version: bool,
}

/// Reads the command line without the program's name.
///
/// # Errors
/// The help text, or a [`UsageError`].
pub(super) fn read(argv: Vec<OsString>) -> Result<Arguments, EarlyExit> {
    let words = normalise(argv).map_err(|UsageError(error)| EarlyExit::from(error))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Arguments::from_args(&["keepwatch"], &words).map_err(|mut exit| {
        let words = exit.output.split_inclusive([' ', '\n']);
        exit.output = words.map(as_written).collect();
        exit
    })
}

/// A word of the help, with its space, as the callers write it.
fn as_written(word: &str) -> String {
    let (name, space) = word.split_at(word.trim_end().len());
    [find(name).map_or(name, |known| known.name), space].concat()
}

/// The option of this name, whichever way it is written.
fn find(name: &str) -> Option<&'static OptionSpec> {
    let same = |(a, b)| a == b || matches!((a, b), (b'_', b'-') | (b'-', b'_'));
    let is = |known: &&OptionSpec| {
        known.name.len() == name.len() && known.name.bytes().zip(name.bytes()).all(same)
    };
    OPTIONS.iter().find(is)
}

/// What a word asks for.
enum ParsedOption {
    Option(&'static OptionSpec),
    /// A switch, turned off.
    Off(&'static OptionSpec),
    /// Nothing, but it has a value.
    Ignored,
}

fn meaning(name: &str) -> Option<ParsedOption> {
    if !name.starts_with("--") {
        return None;
    }
    if let Some(known) = find(name) {
        return Some(ParsedOption::Option(known));
    }
    let dashed = name.replace('_', "-");
    if dashed.starts_with(IGNORED_PREFIX) || IGNORED.contains(&dashed.as_str()) {
        return Some(ParsedOption::Ignored);
    }
    let switch = dashed.strip_prefix("--no")?;
    find(&format!("--{}", switch.strip_prefix('-').unwrap_or(switch)))
        .filter(|known| known.negatable)
        .map(ParsedOption::Off)
}

/// Brings the command line to `--name value` with dashes, each option at most once.
fn normalise(argv: Vec<OsString>) -> Result<Vec<String>, UsageError> {
    let mut options: Vec<(&OptionSpec, String)> = Vec::new();
    let mut words = argv
        .into_iter()
        .map(|word| word.into_string().map_err(|_| UsageError("an argument is not UTF-8".into())));
    while let Some(word) = words.next().transpose()? {
        let word = match word.as_str() {
            "-d" => "--debug",
            "-h" => "--help",
            word => word,
        };
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word, None),
        };
        let meaning = meaning(name).ok_or_else(|| {
            UsageError(format!("unknown option {word:?}: --help lists what there is"))
        })?;
        let takes_value = match meaning {
            ParsedOption::Option(known) => known.takes_value,
            ParsedOption::Off(_) => false,
            ParsedOption::Ignored => true,
        };
        let value = match inline {
            Some(value) if takes_value => value,
            Some(value) => return Err(UsageError(format!("{name} {value:?}: wants no value"))),
            None if takes_value => {
                let value = words.next().transpose()?;
                // An option in the place of a value means that the value was forgotten.
                let value = value.filter(|value| !value.starts_with("--"));
                // What begins with the prefix of the ignored ones may be anything.
                value
                    .ok_or_else(|| UsageError(format!("{}: wants a value", name.escape_debug())))?
            }
            None => String::new(),
        };
        if let ParsedOption::Option(known) | ParsedOption::Off(known) = meaning {
            options.retain(|(other, _)| other.name != known.name);
            if let ParsedOption::Option(_) = meaning {
                options.push((known, value));
            }
        }
    }
    let mut words = Vec::new();
    for (known, value) in options {
        words.push(known.name.replace('_', "-"));
        words.extend(known.takes_value.then_some(value));
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
