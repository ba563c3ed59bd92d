//! The command line as it is written, brought to the one form that `argh` reads.
//!
//! The callers write `--router_id=X` or `--router-id X`, pass options that mean nothing here, and
//! expect a later value to replace an earlier one.

use std::ffi::OsString;

use argh::{ArgsInfo, EarlyExit, FlagInfoKind, FromArgs};

use super::UsageError;

/// Options whose names the callers write with `_`, which `argh` does not take.
const UNDERSCORED: [&str; 10] = [
    "--router-id",
    "--conf-dir",
    "--monitor-interface",
    "--monitor-cidr",
    "--pid-file",
    "--state-path",
    "--enable-conntrackd",
    "--garp-master-repeat",
    "--garp-master-delay",
    "--garp-interval",
];

/// Options of the original that are taken with their value and ignored.
const IGNORED: [&str; 2] = ["--config-file", "--config-dir"];
/// What else is ignored begins like this.
const IGNORED_PREFIX: &str = "--AGENT-";

/// Switches that the original also takes with `no` before their name.
const NEGATABLE: [&str; 4] = ["--debug", "--verbose", "--use-syslog", "--enable-conntrackd"];

/// Watch whether keepalived has put a virtual IP address (VIP) on an interface, keep a one-word
/// state file, and tell the agent over HTTP on a Unix socket.
#[derive(Debug, Default, FromArgs, ArgsInfo)]
#[argh(help_triggers("-h", "--help"))]
#[argh(
    usage = "--router-id ID --conf-dir DIR --monitor-interface NAME --monitor-cidr CIDR --state-path DIR (--pid-file FILE | --foreground) [options]"
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

/// How an option is written by those who call the original.
pub(super) fn spelling(option: &str) -> String {
    if UNDERSCORED.contains(&option) {
        format!("--{}", option.trim_start_matches('-').replace('-', "_"))
    } else {
        option.into()
    }
}

/// Reads the command line without the program's name.
///
/// # Errors
/// The help text, or a [`UsageError`].
pub(super) fn read(argv: Vec<OsString>) -> Result<Arguments, EarlyExit> {
    let words = normalise(argv).map_err(|UsageError(error)| EarlyExit::from(error))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Arguments::from_args(&["keepwatch"], &words).map_err(|mut exit| {
        for option in UNDERSCORED {
            exit.output = exit.output.replace(option, &spelling(option));
        }
        exit
    })
}

enum Kind {
    Value,
    Switch,
    /// The switch of this name, turned off.
    Off(String),
    IgnoredValue,
}

/// What an option with dashes only is, if it is one at all.
fn kind(name: &str) -> Option<Kind> {
    if name.starts_with(IGNORED_PREFIX) || IGNORED.contains(&name) {
        return Some(Kind::IgnoredValue);
    }
    let info = Arguments::get_args_info();
    match info.flags.iter().find(|flag| flag.long == name).map(|flag| &flag.kind) {
        Some(FlagInfoKind::Option { .. }) => Some(Kind::Value),
        Some(FlagInfoKind::Switch) => Some(Kind::Switch),
        None => {
            let switch = format!("--{}", name.strip_prefix("--no")?.trim_start_matches('-'));
            NEGATABLE.contains(&switch.as_str()).then_some(Kind::Off(switch))
        }
    }
}

/// Brings the command line to `--name value` with dashes, each option at most once.
fn normalise(argv: Vec<OsString>) -> Result<Vec<String>, UsageError> {
    let mut options: Vec<(String, Option<String>)> = Vec::new();
    let mut words = argv.into_iter();
    let text = |word: OsString| {
        word.into_string().map_err(|_| UsageError("an argument is not UTF-8".into()))
    };
    while let Some(word) = words.next() {
        let word = text(word)?;
        let word = match word.as_str() {
            "-d" => "--debug".into(),
            "-h" => "--help".into(),
            _ => word,
        };
        let unknown = || UsageError(format!("unknown option {word:?}: --help lists what there is"));
        let option = word.strip_prefix("--").ok_or_else(unknown)?;
        let (name, inline) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (option, None),
        };
        let name = format!("--{}", name.replace('_', "-"));
        let kind = kind(&name).ok_or_else(unknown)?;
        let value = match (&kind, inline) {
            (Kind::Switch | Kind::Off(_), None) => None,
            (Kind::Switch | Kind::Off(_), Some(value)) => {
                return Err(UsageError(format!("{} {value:?}: wants no value", spelling(&name))));
            }
            (Kind::Value | Kind::IgnoredValue, Some(value)) => Some(value),
            (Kind::Value | Kind::IgnoredValue, None) => {
                let value = words.next().map(text).transpose()?;
                // An option in the place of a value means that the value was forgotten.
                let value = value.filter(|value| !value.starts_with("--"));
                // What begins with the prefix of the ignored ones may be anything.
                let shown = || spelling(&name).escape_debug().to_string();
                Some(value.ok_or_else(|| UsageError(format!("{}: wants a value", shown())))?)
            }
        };
        match kind {
            Kind::IgnoredValue => {}
            Kind::Off(switch) => options.retain(|(other, _)| *other != switch),
            Kind::Value | Kind::Switch => {
                options.retain(|(other, _)| *other != name);
                options.push((name, value));
            }
        }
    }
    Ok(options.into_iter().flat_map(|(name, value)| [Some(name), value]).flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(words: &[&str]) -> Result<Vec<String>, UsageError> {
        normalise(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn every_spelling_means_the_same() {
        let expected = normal(&["--router-id", "r1"]).unwrap();
        assert_eq!(expected, ["--router-id", "r1"]);
        let spellings: [&[&str]; 3] =
            [&["--router_id", "r1"], &["--router_id=r1"], &["--router-id=r1"]];
        for words in spellings {
            assert_eq!(normal(words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn value_is_split_at_the_first_equals_sign_and_keeps_its_underscores() {
        assert_eq!(normal(&["--conf_dir=/a=b_c"]).unwrap(), ["--conf-dir", "/a=b_c"]);
        assert_eq!(normal(&["--user="]).unwrap(), ["--user", ""]);
    }

    #[test]
    fn what_the_original_takes_is_ignored_with_its_value() {
        let words = [
            "--AGENT-root_helper=sudo neutron-rootwrap /etc/neutron/rootwrap.conf",
            "--AGENT-root_helper_daemon",
            "x",
            "--config-file",
            "/a",
            "--config-file=/b",
            "--config_dir",
            "/c",
            "-d",
        ];
        assert_eq!(normal(&words).unwrap(), ["--debug"]);
    }

    #[test]
    fn later_option_replaces_an_earlier_one() {
        assert_eq!(normal(&["--user=a", "--user=b"]).unwrap(), ["--user", "b"]);
        assert_eq!(normal(&["--debug", "--nodebug"]).unwrap(), [""; 0]);
        assert_eq!(normal(&["--nodebug", "-d"]).unwrap(), ["--debug"]);
        assert_eq!(normal(&["--noenable_conntrackd", "--nouse-syslog"]).unwrap(), [""; 0]);
    }

    #[test]
    fn mistakes_are_named() {
        let cases: [(&[&str], &str); 10] = [
            (&["--frob"], "unknown option \"--frob\": --help lists what there is"),
            (&["stray\n"], "unknown option \"stray\\n\": --help lists what there is"),
            (&["--"], "unknown option \"--\": --help lists what there is"),
            (&["--router_id"], "--router_id: wants a value"),
            (&["--router-id", "--debug"], "--router_id: wants a value"),
            (&["--config-file"], "--config-file: wants a value"),
            (&["--AGENT-a\n"], "--AGENT-a\\n: wants a value"),
            (&["__debug"], "unknown option \"__debug\": --help lists what there is"),
            (&["--foreground=1"], "--foreground \"1\": wants no value"),
            (&["--noforeground"], "unknown option \"--noforeground\": --help lists what there is"),
        ];
        for (words, error) in cases {
            assert_eq!(normal(words).unwrap_err().0, error);
        }
    }

    #[test]
    fn help_shows_the_names_with_underscores() {
        let help = read(vec!["--help".into()]).unwrap_err();
        assert_eq!(help.status, Ok(()));
        for option in UNDERSCORED {
            assert!(help.output.contains(&format!("\n  {}", spelling(option))), "{}", help.output);
            assert!(!help.output.contains(option), "{}", help.output);
        }
    }
}
