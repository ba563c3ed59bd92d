//! The command line, read and checked before anything is opened. [`Config`] is the one list of the options: `argh`
//! parses by it, `--help` prints it, and `tests/manual-options` compares the manual page with it.

mod argv;
mod command;
mod help;
mod values;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::iter::once;
use std::num::NonZeroU8;
use std::path::PathBuf;

use argh::{ArgsInfo, FlagInfo, FromArgs, Optionality};
use nix::unistd::{Gid, Uid};

use crate::helper::{HookCommand, PATH};
use crate::log::printable;
use crate::monitor::{ActiveWord, AnnounceTiming, Duration, RENOTIFY, Renotify};
use crate::start::files::resolve_directory;
use crate::start::privileges::RunAs;
use crate::start::program::check_interpreter;
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;
use argv::{Given, GivenOption};
pub(crate) use values::denied;
pub use values::may_pass;

/// The options with a command of the hook.
pub(crate) const HOOKS: [&str; 4] =
    ["--hook", "--notify-master", "--notify-backup", "--notify-fault"];

/// Default name of the log file, which is the original's.
const LOG_FILE: &str = "neutron-keepalived-state-change.log";

/// The action that a command line requests.
#[derive(Debug)]
pub enum CliAction {
    /// Run the daemon.
    Run(Box<Config>),
    /// Check whether the daemon would start (`--check`).
    Check(Box<Config>),
    /// List all instances, as JSON if true.
    List(bool),
    /// Print this text.
    Print(String),
}

/// Watch whether keepalived has put a virtual IP address (VIP) on an interface, keep a one-word state file,
/// notify an agent over HTTP on a Unix socket, and run a hook.
#[derive(Debug, FromArgs, ArgsInfo)]
pub struct Config {
    /// identity sent to the agent, 1 to 64 letters, digits, dots, underscores, colons, hyphens and backslashes
    #[argh(option, arg_name = "ID")]
    pub router_id: RouterId,
    /// directory of the state file; it must exist
    #[argh(option, arg_name = "DIR", from_str_fn(values::directory))]
    pub conf_dir: PathBuf,
    /// interface that carries the VIP, by its own name and not by an alternative one; it need not exist yet
    #[argh(option, long = "monitor-interface", arg_name = "NAME", from_str_fn(values::interface))]
    pub interface: InterfaceName,
    /// the VIP, IPv4 or IPv6, with its prefix length; a bare address means /32 or /128
    #[argh(option, long = "monitor-cidr", arg_name = "CIDR", from_str_fn(values::vip))]
    pub vip: Cidr,
    /// directory of the agent's socket; default: no agent is notified
    #[argh(option, long = "state-path", arg_name = "DIR", from_str_fn(values::agent_socket))]
    pub agent_socket: Option<PathBuf>,
    /// pid file, locked while the daemon runs; required unless --foreground
    #[argh(option, arg_name = "FILE", from_str_fn(values::file_path))]
    pub pid_file: Option<PathBuf>,
    /// network namespace, as a name under /run/netns or an absolute path; default: the current one
    #[argh(option, arg_name = "NAME", from_str_fn(values::namespace))]
    pub namespace: Option<PathBuf>,
    /// do not become a daemon; without --log-file, --log-dir and --use-syslog, log to standard error
    #[argh(switch)]
    pub foreground: bool,
    /// word for the active state, master or primary; default: master
    #[argh(option, arg_name = "WORD", default = "ActiveWord::Master")]
    #[argh(from_str_fn(values::active_word))]
    pub active_word: ActiveWord,
    /// seconds after an outage of the agent (no socket, connection refused or reset, no reply) at which to repeat
    /// the notification, as a restarted agent may answer 200 before it knows its routers: 1 to 9 ascending
    /// numbers, or 0 for never; default: 30,60,120,240,480,960,1800,2700,3600
    #[argh(option, arg_name = "SECONDS", from_str_fn(values::renotify))]
    #[argh(default = "Renotify::from_array(RENOTIFY.map(Duration::from_secs))")]
    pub renotify: Renotify,
    /// do not announce addresses that appear, by gratuitous ARP and neighbour advertisements; see --no-reannounce
    #[argh(switch)]
    pub no_announce: bool,
    /// after a split brain, or a claim of the VIP without an answer, do not announce all addresses again; otherwise that is done
    /// with --no-announce, too, if --detect-split-brain or --probe is given
    #[argh(switch)]
    pub no_reannounce: bool,
    /// rounds of announcements for an address, 1 to 100 (in keepalived: messages in each of two sets); default: 3
    #[argh(option, arg_name = "N", default = "AnnounceTiming::default().repeat")]
    #[argh(from_str_fn(values::rounds))]
    pub garp_master_repeat: NonZeroU8,
    /// seconds between two rounds of an address, 0.1 to 3600 (in keepalived: between two sets, 0 for a single
    /// set); default: 2
    #[argh(option, arg_name = "SECONDS", default = "AnnounceTiming::default().delay")]
    #[argh(from_str_fn(values::delay))]
    pub garp_master_delay: Duration,
    /// mean seconds between the announcements of two addresses, 0 to 3600, for switches that throttle them; default: 0
    #[argh(option, arg_name = "SECONDS", default = "AnnounceTiming::default().interval")]
    #[argh(from_str_fn(values::interval))]
    pub garp_interval: Duration,
    /// listen for other stations that claim the VIP, even with --no-announce; a later
    /// --no-detect-split-brain also switches --probe off
    #[argh(switch)]
    pub detect_split_brain: bool,
    /// seconds between probes for a second, silent holder of the VIP, 1 to 3600: ARP probes or neighbour
    /// solicitations while the VIP is present; they imply --detect-split-brain; default: none (0 or --no-probe)
    #[argh(option, arg_name = "SECONDS", from_str_fn(values::whole_seconds))]
    pub probe: Option<Duration>,
    /// pid file of keepalived's VRRP process, such as /run/vrrp.pid, of this PID namespace unless keepalived locks it: a
    /// trouble is shown after keepalived has not run for 10 seconds; default: not checked (--no-keepalived-pid-file)
    #[argh(option, arg_name = "FILE", from_str_fn(values::file_path))]
    pub keepalived_pid_file: Option<PathBuf>,
    /// run conntrackd's sync commands on each transition; the program is searched for in PATH, /usr/local/sbin,
    /// /usr/sbin and /sbin
    #[argh(switch)]
    pub enable_conntrackd: bool,
    /// configuration of conntrackd, a regular file; default: conntrackd.conf beside the state file
    #[argh(option, arg_name = "FILE", from_str_fn(values::path))]
    pub conntrackd_conf: Option<PathBuf>,
    /// command line to run with the first state and on each change, called as keepalived calls notify scripts: with
    /// INSTANCE, the ID of --router-id, a state such as MASTER, and 0 as last arguments; also --notify
    #[argh(option, arg_name = "COMMAND", from_str_fn(command::notify))]
    pub hook: Option<HookCommand>,
    /// command line to run for MASTER, before that of --hook and without its arguments
    #[argh(option, arg_name = "COMMAND", from_str_fn(command::of_state))]
    pub notify_master: Option<HookCommand>,
    /// the same for BACKUP
    #[argh(option, arg_name = "COMMAND", from_str_fn(command::of_state))]
    pub notify_backup: Option<HookCommand>,
    /// the same for FAULT
    #[argh(option, arg_name = "COMMAND", from_str_fn(command::of_state))]
    pub notify_fault: Option<HookCommand>,
    /// user to run the hook as, by name or number; default: that of --user
    #[argh(option, arg_name = "USER", from_str_fn(values::user))]
    pub hook_user: Option<(Uid, Option<Gid>)>,
    /// seconds after which a hook that has not ended is killed with its session, 0.1 to 3600; after a killed run the
    /// next may take twice as long, up to ten minutes; default: 90
    #[argh(option, arg_name = "SECONDS", default = "Duration::from_secs(90)")]
    #[argh(from_str_fn(values::delay))]
    pub hook_timeout: Duration,
    /// seconds for which a state other than FAULT must have lasted before the hook runs, 0 to 3600; default: 0
    #[argh(option, arg_name = "SECONDS", default = "Duration::ZERO")]
    #[argh(from_str_fn(values::interval))]
    pub hook_delay: Duration,
    /// environment variable of the daemon that the hook gets, too; may be given several times
    #[argh(option, arg_name = "NAME", from_str_fn(values::variable))]
    pub hook_env: Vec<String>,
    /// file to write metrics to, for the textfile collector of Prometheus, which reads *.prom
    #[argh(option, arg_name = "FILE", from_str_fn(values::file))]
    pub metrics_file: Option<PathBuf>,
    /// user to run as once the sockets are open, by name or number; the files are opened as this user
    #[argh(option, arg_name = "USER", from_str_fn(values::user))]
    pub user: Option<(Uid, Option<Gid>)>,
    /// group to run as, by name or number; default: the primary group of --user
    #[argh(option, arg_name = "GROUP", from_str_fn(values::group))]
    pub group: Option<Gid>,
    /// log file; a relative path is below --log-dir; default: standard error with --foreground, otherwise
    /// neutron-keepalived-state-change.log beside the state file
    #[argh(option, arg_name = "FILE", from_str_fn(values::relative_path))]
    pub log_file: Option<PathBuf>,
    /// directory of the log file
    #[argh(option, arg_name = "DIR", from_str_fn(values::path))]
    pub log_dir: Option<PathBuf>,
    /// log to /dev/log, and to a file only with --log-file or --log-dir
    #[argh(switch)]
    pub use_syslog: bool,
    /// log every event
    #[argh(switch, short = 'd')]
    pub debug: bool,
    /// accepted for compatibility; it is the default
    #[argh(switch)]
    pub verbose: bool,
    /// netlink receive buffer in bytes; default: 1048576
    // Room for about 2,500 events, as the kernel doubles it.
    #[argh(option, arg_name = "BYTES", default = "1 << 20", from_str_fn(values::rcvbuf))]
    pub netlink_rcvbuf: usize,
    /// receive address events of all interfaces (debugging)
    #[argh(switch)]
    pub no_netlink_filter: bool,
    /// disable Landlock, which limits access to files
    #[argh(switch)]
    pub no_landlock: bool,
    /// disable the seccomp filter, by which a system call that is not allowed ends the daemon with SIGSYS
    #[argh(switch)]
    pub no_seccomp: bool,
    /// check the options and what they name, print what would be watched, and exit, after 20 seconds at the latest
    #[argh(switch)]
    pub check: bool,
    /// print every instance on this machine with its state and the deliveries to agent and hook, and exit
    #[argh(switch)]
    pub list: bool,
    /// with --list, print JSON
    #[argh(switch)]
    pub json: bool,
    /// print the version and exit; also -V
    #[argh(switch, short = 'v')]
    pub version: bool,
}

/// Returns all options, `--help` first.
fn flags() -> &'static [FlagInfo<'static>] {
    Config::get_args_info().flags
}

/// The options that Neutron and keepalived write with underscores, which `argh` does not accept.
const WITH_UNDERSCORES: &str = "--router_id --conf_dir --monitor_interface --monitor_cidr --state_path --pid_file \
    --enable_conntrackd --garp_master_repeat --garp_master_delay --garp_interval";

/// Returns the text with the names of these options written with underscores.
fn with_underscores(text: &str) -> String {
    let replace = |text: String, name: &str| text.replace(&name.replace('_', "-"), name);
    WITH_UNDERSCORES.split(' ').fold(text.into(), replace)
}

/// Reads and checks a command line without the program's name.
///
/// # Errors
/// One line that names the option, its value and what was expected.
pub fn parse(argv: Vec<OsString>) -> Result<CliAction, String> {
    read(argv).map_err(|error| printable(&with_underscores(&error)))
}

/// Returns the options of a command line by their long names, with unchecked values. Touches no file.
pub(crate) fn given(argv: &[OsString]) -> Vec<(&'static str, String)> {
    let given = argv::read(argv.to_vec()).unwrap_or_default();
    let text = |(flag, how): GivenOption| match how {
        Given::Switch => Some((flag.long, String::new())),
        Given::Value(value) => Some((flag.long, value)),
        Given::Off => None,
    };
    given.into_iter().filter_map(text).collect()
}

fn read(argv: Vec<OsString>) -> Result<CliAction, String> {
    let mut given = argv::read(argv)?;
    let place = |name: &str, is_off: bool| {
        given.iter().position(|(flag, how)| flag.long == name && (*how == Given::Off) == is_off)
    };
    // The later of the two counts.
    let ignores_claims = place("--detect-split-brain", true) > place(argv::PROBE, false);
    given.retain(|(_, how)| *how != Given::Off);
    let is_given = |name: &str| given.iter().any(|(flag, _)| flag.long == name);
    // These work without the required options.
    if is_given("--help") {
        return Ok(CliAction::Print(with_underscores(&help::text())));
    }
    if is_given("--version") {
        return Ok(CliAction::Print(format!("keepwatch {}\n", env!("CARGO_PKG_VERSION"))));
    }
    if is_given("--list") {
        return match given.iter().find(|(flag, _)| !matches!(flag.long, "--list" | "--json")) {
            Some((other, _)) => {
                Err(format!("--list takes no other option but --json: {}", other.long))
            }
            None => Ok(CliAction::List(is_given("--json"))),
        };
    }
    if is_given("--json") {
        return Err(missing("--list, as --json is given"));
    }
    // The error of `argh` has several lines.
    let is_missing =
        |flag: &&FlagInfo<'_>| flag.optionality == Optionality::Required && !is_given(flag.long);
    if let Some(flag) = flags().iter().find(is_missing) {
        let hint = if given.is_empty() { "; try --help" } else { "" };
        return Err(missing(&format!("{}: {}{hint}", flag.long, flag.description)));
    }
    let words = given.iter().flat_map(|(flag, how)| {
        let value = if let Given::Value(value) = how { Some(&**value) } else { None };
        once(flag.long).chain(value)
    });
    let mut config = Config::from_args(&["keepwatch"], &words.collect::<Vec<_>>())
        .map_err(|exit| exit.output.trim_end().to_string())?;
    config.complete(ignores_claims)?;
    let config = Box::new(config);
    Ok(if config.check { CliAction::Check(config) } else { CliAction::Run(config) })
}

fn missing(option: &str) -> String {
    format!("Missing required option {option}")
}

impl Config {
    /// Checks the options that require another one, ignores claims by a later `--no-detect-split-brain`, and fills in the
    /// defaults that depend on others.
    fn complete(&mut self, ignores_claims: bool) -> Result<(), String> {
        if self.pid_file.is_none() && !self.foreground {
            return Err(missing("--pid_file or --foreground"));
        }
        if cfg!(feature = "defmt") && self.use_syslog {
            return Err("--use-syslog: this build has a binary log: expected --log-file".into());
        }
        if let (Some((_, primary)), None) = (self.user, self.group) {
            let missing_group = || missing("--group, as --user has no password entry");
            self.group = Some(primary.ok_or_else(missing_group)?);
        }
        let has_hook = self.has_hook();
        if let Some((_, group)) = &mut self.hook_user {
            if !has_hook {
                return Err(missing("--hook, as --hook-user is given"));
            }
            *group = group.or(self.group);
            group.ok_or_else(|| missing("--group, as --hook-user has no password entry"))?;
        }
        if ignores_claims {
            (self.probe, self.detect_split_brain) = (None, false);
        } else {
            self.detect_split_brain |= self.probe.is_some() || !self.no_announce;
        }
        if self.conntrackd_conf.is_some() && !self.enable_conntrackd {
            return Err(missing("--enable_conntrackd, as --conntrackd-conf is given"));
        }
        self.log_file =
            self.find_log_file().map(std::path::absolute).transpose().map_err(|error| {
                format!(
                    "--log-file: expected an absolute path, without a working directory: {}",
                    denied(error)
                )
            })?;
        self.check_interpreters()?;
        self.check_paths()
    }

    /// Refuses a hook whose first line names no program.
    fn check_interpreters(&self) -> Result<(), String> {
        let path = self.hook_path();
        let [master, backup, fault] = self.hooks_of_states();
        for (option, hook) in HOOKS.into_iter().zip([self.hook.as_ref(), master, backup, fault]) {
            let Some(HookCommand { program, .. }) = hook else { continue };
            check_interpreter(program, &path).map_err(|(why, _)| {
                let program = program.display();
                format!("{option} {program}: expected an existing program that may be run: {why}")
            })?;
        }
        Ok(())
    }

    /// Refuses a file that the daemon writes if another option names it, too.
    fn check_paths(&self) -> Result<(), String> {
        let files = [
            ("--pid_file", &self.pid_file),
            ("--log-file", &self.log_file),
            ("--metrics-file", &self.metrics_file),
        ];
        let others = [&self.agent_socket, &self.keepalived_pid_file].into_iter().flatten().cloned();
        let mut taken: BTreeSet<_> = others
            .chain([self.state_file(), self.conntrackd_conf()])
            .chain(self.hooks().map(|hook| hook.program.clone()))
            .map(|file| resolve_directory(&file))
            .collect();
        for (option, file) in files {
            if let Some(file) = file
                && !taken.insert(resolve_directory(file))
            {
                return Err(format!("{option} {}: expected a file of its own", file.display()));
            }
        }
        Ok(())
    }

    /// Returns the path of the log file by the rules of the original: a relative file is in the log directory,
    /// where the default name applies as well.
    fn find_log_file(&self) -> Option<PathBuf> {
        match (&self.log_file, &self.log_dir) {
            (Some(file), Some(directory)) => Some(directory.join(file)),
            (Some(file), None) => Some(file.clone()),
            (None, Some(directory)) => Some(directory.join(LOG_FILE)),
            (None, None) if self.foreground || self.use_syslog => None,
            (None, None) => Some(self.conf_dir.join(LOG_FILE)),
        }
    }

    /// Returns how to announce addresses, on a change or after a split brain. `None`: not at all.
    pub fn announce(&self) -> Option<AnnounceTiming> {
        (!self.no_announce || self.detect_split_brain).then_some(AnnounceTiming {
            repeat: self.garp_master_repeat,
            delay: self.garp_master_delay,
            interval: self.garp_interval,
        })
    }

    /// Returns the user and group to run as.
    pub fn run_as(&self) -> RunAs {
        RunAs { user: self.user.map(|(user, _)| user), group: self.group }
    }

    /// Returns the user and group to run the hook as.
    pub fn run_hook_as(&self) -> RunAs {
        match self.hook_user {
            Some((user, group)) => RunAs { user: Some(user), group },
            None => self.run_as(),
        }
    }

    /// Returns the commands of --notify-master, --notify-backup and --notify-fault.
    pub fn hooks_of_states(&self) -> [Option<&HookCommand>; 3] {
        [&self.notify_master, &self.notify_backup, &self.notify_fault].map(Option::as_ref)
    }

    /// Returns all commands of the hook.
    pub fn hooks(&self) -> impl Iterator<Item = &HookCommand> {
        self.hooks_of_states().into_iter().chain([self.hook.as_ref()]).flatten()
    }

    /// Returns whether there is a hook.
    pub fn has_hook(&self) -> bool {
        self.hooks().next().is_some()
    }

    /// Returns the `PATH` of the hook.
    pub(crate) fn hook_path(&self) -> OsString {
        let is_own = self.hook_env.iter().any(|name| name == "PATH");
        let own = is_own.then(|| env::var_os("PATH")).flatten();
        own.unwrap_or_else(|| PATH.into())
    }

    /// Returns the path of the state file.
    pub fn state_file(&self) -> PathBuf {
        self.conf_dir.join("state")
    }

    /// Returns the path of conntrackd's configuration.
    pub fn conntrackd_conf(&self) -> PathBuf {
        self.conntrackd_conf.clone().unwrap_or_else(|| self.conf_dir.join("conntrackd.conf"))
    }
}
