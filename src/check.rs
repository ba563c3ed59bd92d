//! `--check`: starts the daemon as far as possible without a trace, and prints what it would do.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread::sleep;

use nix::errno::Errno as NixErrno;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::daemon::Daemon;
use crate::errno::Errno;
use crate::hand_over;
use crate::helper::open_configuration;
use crate::log::{Denial, of_user, printable};
use crate::monitor::{
    Action, Duration, Input, Keepalived, LogEvent, Monitor, MonitorConfig, State, Tables,
};
use crate::options::Config;
use crate::start::program::check_conntrackd;
use crate::start::{StartError, files, named, process, service_manager};
use crate::sys::netlink::QuestionSocket;
use crate::sys::service_manager::ReadinessNotifier;
use crate::sys::{clock, signals};
use crate::trouble::list_troubles;

/// How long the kernel may take to list the interface and its addresses. The daemon would wait on, without a state.
const LIMIT: Duration = Duration::from_secs(10);

/// Prints what the daemon would do.
///
/// # Errors
/// The error that would prevent the daemon's start, or its first state.
// Not in the frame of `main`, whose pages the daemon keeps.
#[inline(never)]
pub fn check(config: &Config, tables: &mut Tables) -> Result<(), StartError> {
    print("program", program());
    print("name", &config.router_id);
    let mut starter = ReadinessNotifier::Silent;
    if config.foreground {
        starter = service_manager::from_environment()?;
    } else {
        // A daemon's standard streams.
        process::open_null()?;
    }
    let (mut daemon, warnings) = Daemon::start(config, &mut starter, tables, true)?;
    signals::unblock_all_but_usr2();
    let opened = |_: &Path| Ok::<_, Errno>(());
    report("namespace", config.namespace.as_deref(), opened, "entered");
    let state = state(config, &mut daemon.questions).map_err(named("netlink socket"))?;
    print("VIP", format_args!("{} on {}: {state}", config.vip, config.interface));
    if let (Some(file), Some(path)) = (&mut daemon.keepalived, &config.keepalived_pid_file) {
        let runs = match file.check() {
            Keepalived::Runs => "runs",
            Keepalived::Gone => "does not run",
            Keepalived::Unknown => "cannot be seen",
        };
        print("keepalived", format_args!("{}: {runs}", path.display()));
    }
    for hook in config.hooks() {
        report("hook", Some(&hook.program), |hook| check_hook(hook, config), "can be run");
    }
    report("pid file", config.pid_file.as_deref(), opened, "can be written");
    let append = |path: &Path| files::examine_room(path, b"trial");
    report("log file", config.log_file.as_deref(), append, "can be written");
    let state_file = config.state_file();
    let replace = |path: &Path| files::examine_replaced(path, b"trial");
    report("state file", Some(&state_file), replace, "can be written");
    report("metrics", config.metrics_file.as_deref(), replace, "can be written");
    if let Some(program) = config.find_conntrackd() {
        report("conntrackd", Some(&program.path), check_conntrackd, "can be run");
        let open =
            |path: &Path| open_configuration(path, config.run_as()).map(drop).map_err(Errno::from);
        report("conntrackd", Some(&config.conntrackd_conf()), open, "can be read");
    }
    report("agent", config.agent_socket.as_deref(), find_socket, "exists");
    for warning in warnings {
        print("warning", warning);
    }
    Ok(())
}

/// Prints whether a thing works, if its path is configured. A failure would not prevent the start.
fn report<E: Denial>(
    what: &str,
    path: Option<&Path>,
    examine: impl Fn(&Path) -> Result<(), E>,
    works: &str,
) {
    let Some(path) = path else { return };
    let shown = path.display();
    match examine(path).map_err(|error| of_user(error, geteuid())) {
        Ok(()) => print(what, format_args!("{shown}: {works}")),
        Err(error) => print(what, format_args!("{shown}: {error}; would be retried")),
    }
}

/// Checks root's hook, if the hook hands over to it. Any other was checked with the options.
fn check_hook(hook: &Path, config: &Config) -> Result<(), String> {
    // The unit's instance has its own directory; OPTIONS may give it another router id.
    let instance = config.conf_dir.file_name().unwrap_or_default().to_string_lossy();
    if hook.ends_with("hand-over") { hand_over::check(&instance) } else { Ok(()) }
}

fn print(what: &str, value: impl Display) {
    process::print(&format!("{what:<11} {}\n", printable(&value.to_string())), 1);
}

/// Returns the program's own path, with symlinks resolved, and its user.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let path = path.display();
    match geteuid().as_raw() {
        0 => format!("{path}: run as root"),
        user => format!("{path}: run as user {user}, not as root"),
    }
}

/// Returns whether the VIP is present, and the state that the daemon would report first.
fn state(config: &Config, questions: &mut QuestionSocket) -> Result<String, Errno> {
    let mut monitor = Monitor::new(MonitorConfig::new(config.interface, config.vip));
    let (mut found, mut elsewhere) = (None, String::new());
    let deadline = clock::now() + LIMIT;
    while clock::now() < deadline {
        let now = clock::now();
        monitor.handle(&Input::QueueEmpty, now);
        while let Some(action) = monitor.next_action(now) {
            match action {
                Action::Ask(question) => {
                    let mut end = questions.ask(question, &config.interface);
                    while end.is_none() {
                        end = questions.read_part(|entry| monitor.handle(entry, now));
                    }
                    if let Some(end) = end {
                        monitor.handle(&end, now);
                    }
                }
                Action::WriteState(state) => {
                    found = Some(state);
                    monitor.handle(&Input::StateFile(Ok(())), now);
                }
                Action::Log(LogEvent::Elsewhere { interface, cidr }) => {
                    elsewhere = format!(" ({cidr} is on {interface})");
                }
                _ => {}
            }
        }
        match (found, monitor.deadline()) {
            (Some(_), None) => break,
            (_, Some(due)) if due > now => sleep((due - now).into()),
            _ => {}
        }
    }
    // While addresses change all the time, no list of all of them may be complete.
    let state = found.ok_or(NixErrno::ETIMEDOUT)?;
    let there = if state == State::Active { "present" } else { "absent" };
    let word = state.word(config.active_word);
    let troubles = list_troubles(&monitor.status().troubles);
    Ok(format!("{there}, would start as {word}{elsewhere}{troubles}"))
}

/// Checks for a socket that this user may connect to, without connecting: the agent would take that for a notification.
fn find_socket(path: &Path) -> Result<(), Errno> {
    let is_socket = fs::metadata(path)?.file_type().is_socket();
    if is_socket { Ok(access(path, AccessFlags::W_OK)?) } else { Err(NixErrno::ENOTSOCK.into()) }
}
