//! From a checked command line to a daemon ready to run: everything is opened here.

use std::fmt::Display;
use std::path::Path;

use mio::{Events, Poll};
use nix::errno::Errno as NixErrno;
use nix::sys::stat::{FileStat, Mode, umask};
use nix::unistd::{chdir, geteuid};

use super::event_loop::{Daemon, EncodedRequests};
use crate::errno::Errno;
use crate::log::{self, DisplayArg, Log, LogContext, info, warning};
use crate::metrics::MetricsFile;
use crate::monitor::{Duration, Monitor, MonitorConfig, NamespaceCheck, State, Tables};
use crate::options::{Config, Program, REFUSED};
use crate::sys::agent::Agent;
use crate::sys::atomic_file::{AtomicFile, TemporaryName};
use crate::sys::clock;
use crate::sys::constants::{Constant, Constants};
use crate::sys::file_id::identify_path;
use crate::sys::files::parent;
use crate::sys::helper::{Conntrackd, Helper, Hook};
use crate::sys::interface;
use crate::sys::landlock::{Ruleset, access};
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::memory;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::netns::{self, NamespaceWatch};
use crate::sys::packet::PacketSocket;
use crate::sys::pid_file::{PidFile, PidFileError};
use crate::sys::privileges;
use crate::sys::seccomp;
use crate::sys::service_manager::{ReadinessNotifier, ServiceManager, stderr_is_journal};
use crate::sys::signals::Signals;
use crate::sys::stderr;
use crate::wire::http;

/// As many as there are descriptors to poll.
const EVENTS: usize = 8;
/// How often to check that the namespace is still there, where no event reports its deletion.
const CHECK_NAMESPACE: Duration = Duration::from_secs(5);

impl<'a> Daemon<'a> {
    /// Opens what the daemon needs, in an order on which its security depends:
    ///
    /// 1. The namespace is entered before any socket is opened.
    /// 2. The helpers that run programs are forked before there are descriptors that they would inherit.
    /// 3. The pid file is locked before the log is opened, as a second instance must not write to that.
    /// 4. Whatever needs root is opened, then root is given up.
    /// 5. What the daemon opens again and again is tried with the rights that it has from then on.
    /// 6. Last, when all is open, what is not needed to run is given up for good.
    ///
    /// Nothing is reported yet when this returns.
    ///
    /// # Errors
    /// One line that names the thing and what is wrong with it.
    #[inline(never)]
    pub fn start(
        config: &Config,
        starter: &'a mut ReadinessNotifier,
        tables: &'a mut Tables,
    ) -> Result<Self, String> {
        leave_directory()?;
        let namespace = enter_namespace(config)?;
        check_interface_name(config)?;
        // The modes of files are given where they are created.
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
        let program = config.find_conntrackd();
        let conntrackd = fork_conntrackd(config, program.as_ref())?;
        let hook = fork_hook(config)?;

        let mut constants = Constants::new().map_err(named("memory"))?;
        let pid_file = lock_pid_file(config, &mut constants)?;
        open_log(config, &mut constants)?;
        warn_refused_program(program.as_ref());
        warn_foreign_lock(pid_file.as_ref());

        let namespace = namespace
            .and_then(|identity| NamespaceWatch::new(config.namespace.as_deref(), identity));
        let signals = Signals::block().map_err(named("signalfd"))?;
        let route = open_route(config)?;
        let packets = open_packets(config)?;
        memory::allow_lock();
        privileges::drop(config.run_as())?;

        warn_world_writable(&config.conf_dir);
        warn_hidden_namespace(namespace.as_ref());
        let temporary = TemporaryName::new(&mut constants).map_err(named("memory"))?;
        let path = config.conf_dir.join("state");
        let places = [Constant::ConfDir, Constant::State];
        let state_file = AtomicFile::new(&path, temporary, places, &mut constants)
            .map_err(at("state file", &path))?;
        let metrics_file = open_metrics(config, temporary, &mut constants)?;
        let agent = name_agent(config, &mut constants)?;
        let monitor = Box::new(Monitor::new(MonitorConfig {
            seed: seed(),
            announce: config.announce().map(|timing| (timing, tables)),
            detect_split_brain: config.detects_split_brain(),
            notify_agent: agent.is_some(),
            renotify: config.renotify.clone(),
            sync_conntrack: conntrackd.is_some(),
            hook: hook.is_some(),
            write_metrics: metrics_file.is_some(),
            check_namespace: check_namespace(namespace.as_ref()),
            tell_manager: starter.manager().is_some(),
            watchdog: starter.manager().and_then(ServiceManager::watchdog),
            ..MonitorConfig::new(config.interface, config.vip, route.port())
        }));
        let daemon = Self {
            events: Events::with_capacity(EVENTS),
            poll: Poll::new().map_err(Errno::from).map_err(named("epoll"))?,
            route,
            filter_events: !config.no_netlink_filter,
            signals,
            packets,
            namespace,
            conntrackd,
            hook,
            agent,
            state_file,
            metrics_file,
            pid_file,
            starter,
            requests: encode_requests(config)?,
            monitor,
            context: LogContext {
                router: config.router_id.clone(),
                active: config.active_word,
                interface: config.interface,
                vip: config.vip,
            },
            reads_frames: true,
            log_waits: false,
            now: clock::now(),
            ending: None,
        };
        daemon.register().map_err(named("epoll"))?;
        check_pid_file(config, daemon.pid_file.as_ref())?;
        confine(config, constants)?;
        Ok(daemon)
    }
}

/// Gives up what is not needed any more now that all is open.
#[inline(never)]
fn confine(config: &Config, constants: Constants) -> Result<(), String> {
    constants.seal().map_err(named("memory"))?;
    if let Err(errno) = memory::lock() {
        info!("memory is not locked: {}", DisplayArg(errno));
    }
    if !config.no_landlock && !restrict_files(config).map_err(named("Landlock"))? {
        info!("this kernel has no Landlock");
    }
    privileges::limit().map_err(named("limits"))?;
    if !config.no_seccomp && !seccomp::install().map_err(named("seccomp"))? {
        warning!("there is no seccomp filter for this architecture");
    }
    Ok(())
}

/// Turns the error of a thing into one line.
fn named<E: Display>(thing: &str) -> impl FnOnce(E) -> String {
    move |error| describe(thing, &"", &error)
}

/// The same for a thing that has a path.
fn at<'a, E: Display>(thing: &'a str, path: &'a Path) -> impl FnOnce(E) -> String + 'a {
    move |error| describe(thing, &format_args!(" {}", path.display()), &error)
}

// Once in the program, and not in every place that may fail.
#[inline(never)]
fn describe(thing: &str, path: &dyn Display, error: &dyn Display) -> String {
    format!("{thing}{path}: {error}")
}

/// A daemon must not keep a file system from being unmounted.
fn leave_directory() -> Result<(), String> {
    chdir("/").map_err(Errno::from).map_err(named("/"))
}

#[inline(never)]
fn enter_namespace(config: &Config) -> Result<Option<FileStat>, String> {
    match &config.namespace {
        Some(path) => netns::enter(path).map_err(at("namespace", path)).map(Some),
        // Unknown without /proc.
        None => Ok(netns::present().ok()),
    }
}

#[inline(never)]
fn check_interface_name(config: &Config) -> Result<(), String> {
    let name = &config.interface;
    interface::check_own_name(name)
        .map_err(|expected| describe("--monitor_interface ", name, &expected))
}

#[inline(never)]
fn fork_conntrackd(config: &Config, program: Option<&Program>) -> Result<Option<Helper>, String> {
    let Some(program) = program else { return Ok(None) };
    let conntrackd = Conntrackd {
        program: program.path.clone(),
        configuration: config.conntrackd_conf(),
        user: config.run_as(),
        landlock: !config.no_landlock,
    };
    Helper::fork(&conntrackd).map(Some).map_err(named("conntrackd helper"))
}

#[inline(never)]
fn fork_hook(config: &Config) -> Result<Option<Helper>, String> {
    let Some(path) = &config.hook else { return Ok(None) };
    config.check_hook(path).map_err(at("hook", path))?;
    let hook = Hook {
        program: path.clone(),
        user: config.run_hook_as(),
        timeout: config.hook_timeout.into(),
        router: config.router_id.clone(),
        interface: config.interface,
        vip: config.vip,
    };
    Helper::fork(&hook).map(Some).map_err(at("hook", path))
}

#[inline(never)]
fn lock_pid_file(config: &Config, constants: &mut Constants) -> Result<Option<PidFile>, String> {
    let Some(path) = &config.pid_file else { return Ok(None) };
    PidFile::lock(path, config.run_as(), constants).map(Some).map_err(|error| match error {
        PidFileError::Held(Some(pid)) => {
            at("pid file", path)(format_args!("held by another instance, pid {pid}"))
        }
        PidFileError::Held(None) => at("pid file", path)("held by another instance"),
        PidFileError::Refused(refusal) => at("pid file", path)(refusal),
    })
}

#[inline(never)]
fn open_log(config: &Config, constants: &mut Constants) -> Result<(), String> {
    // A daemon has no standard error.
    if config.foreground {
        stderr::prepare();
    }
    let file = match &config.log_file {
        Some(path) => {
            let file = LogFile::open(path, config.run_as(), constants);
            Some(file.map_err(at("log file", path))?)
        }
        None => None,
    };
    let syslog = if config.use_syslog {
        Some(Syslog::open(constants).map_err(named("syslog socket"))?)
    } else {
        None
    };
    let stderr = file.is_none() && syslog.is_none();
    log::open(Log {
        router: config.router_id.clone(),
        level: config.log_level(),
        stderr,
        journal: stderr && stderr_is_journal(),
        file,
        syslog,
    });
    Ok(())
}

/// A user who puts a program of his own into root's `PATH` must not have it run by root.
#[inline(never)]
fn warn_refused_program(program: Option<&Program>) {
    if let Some(path) = program.and_then(|program| program.refused.as_ref()) {
        warning!("{}: {}", DisplayArg(path.display()), DisplayArg(REFUSED));
    }
}

#[inline(never)]
fn warn_foreign_lock(pid_file: Option<&PidFile>) {
    if let Some(stranger) = pid_file.and_then(|pid_file| pid_file.stranger) {
        warning!("replaced the pid file, as it was locked by {}", DisplayArg(stranger));
    }
}

fn open_route(config: &Config) -> Result<RouteSocket, String> {
    let groups: &[u32] = if config.no_announce { &netlink::WATCH } else { &netlink::ANNOUNCE };
    RouteSocket::open(config.netlink_rcvbuf, groups).map_err(named("netlink socket"))
}

fn open_packets(config: &Config) -> Result<Option<PacketSocket>, String> {
    if !config.detects_split_brain() {
        return Ok(None);
    }
    let socket = PacketSocket::open(config.vip.address());
    socket.map(Some).map_err(named("packet socket (not needed with --no-announce)"))
}

/// Who can write to the state file's directory can say what the state is.
#[inline(never)]
fn warn_world_writable(directory: &Path) {
    let mode = identify_path(directory).map_or(0, |directory| directory.mode);
    if Mode::from_bits_truncate(mode).contains(Mode::S_IWOTH) {
        warning!("world-writable directory: {}", DisplayArg(directory.display()));
    }
}

/// The user that the daemon runs as may not be permitted to look at it.
#[inline(never)]
fn warn_hidden_namespace(namespace: Option<&NamespaceWatch>) {
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        warning!("deletion of the network namespace will go unnoticed: {}", DisplayArg(errno));
    }
}

#[inline(never)]
fn name_agent(config: &Config, constants: &mut Constants) -> Result<Option<Agent>, String> {
    let Some(path) = &config.agent_socket else { return Ok(None) };
    Agent::new(path, constants).map(Some).map_err(at("agent socket", path))
}

#[inline(never)]
fn open_metrics(
    config: &Config,
    temporary: TemporaryName,
    constants: &mut Constants,
) -> Result<Option<MetricsFile>, String> {
    let Some(path) = &config.metrics_file else { return Ok(None) };
    let file = MetricsFile::new(path, config, temporary, constants);
    file.map(Some).map_err(at("metrics file", path))
}

fn check_namespace(namespace: Option<&NamespaceWatch>) -> NamespaceCheck {
    match namespace.map(NamespaceWatch::fd) {
        None => NamespaceCheck::Never,
        Some(Some(_)) => NamespaceCheck::WhenMountsChange,
        Some(None) => NamespaceCheck::Every(CHECK_NAMESPACE),
    }
}

#[inline(never)]
fn encode_requests(config: &Config) -> Result<EncodedRequests, String> {
    let request = |state: State| {
        http::encode(&config.router_id, state.word(config.active_word))
            .map_err(|_| "request too long".to_string())
    };
    Ok(EncodedRequests { active: request(State::Active)?, backup: request(State::Backup)? })
}

/// Another instance may have taken it for a stranger's, and replaced it.
#[inline(never)]
fn check_pid_file(config: &Config, pid_file: Option<&PidFile>) -> Result<(), String> {
    let (Some(path), Some(pid_file)) = (&config.pid_file, pid_file) else { return Ok(()) };
    if pid_file.is_ours() { Ok(()) } else { Err(at("pid file", path)("taken by another instance")) }
}

/// Limits file access to what is written to by name. Returns whether the kernel can do that.
#[inline(never)]
fn restrict_files(config: &Config) -> Result<bool, Errno> {
    let Some(ruleset) = Ruleset::new()? else { return Ok(false) };
    let allow = |path: &Path, access| match ruleset.allow(path, access) {
        // What is not accessible now would not be later either.
        Err(errno) if errno == Errno::from(NixErrno::EACCES) => Ok(()),
        allowed => allowed,
    };
    // A directory that is removed and made again is reached by rights to the one above. They end where the user's
    // own end; root has no others than these, and gets them for `conf_dir` alone, which goes and comes with a router.
    let is_root = geteuid().is_root();
    let above = |directory: &Path| if is_root { directory.into() } else { directory.join("..") };
    let replace = access::MAKE_REG | access::WRITE_FILE | access::REMOVE_FILE;
    let above_conf_dir = config.conf_dir.join("..");
    if is_root && identify_path(&above_conf_dir) == identify_path(Path::new("/")) {
        allow(&config.conf_dir, replace)?;
    } else {
        allow(&above_conf_dir, replace)?;
    }
    if let Some(metrics) = &config.metrics_file {
        allow(&above(parent(metrics)), replace)?;
    }
    if let Some(log) = &config.log_file {
        allow(&above(parent(log)), access::MAKE_REG | access::WRITE_FILE)?;
    }
    if let Some(pid_file) = &config.pid_file {
        allow(parent(pid_file), access::REMOVE_FILE)?;
    }
    ruleset.enforce()?;
    Ok(true)
}

/// Differs between processes, and between those that had the same pid.
fn seed() -> u32 {
    let micros = clock::now().total_micros();
    std::process::id().rotate_left(16) ^ u32::try_from(micros & 0xffff_ffff).unwrap_or_default()
}
