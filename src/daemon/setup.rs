//! From a checked command line to a daemon ready to run: everything is opened here, in this order.

use std::fmt::Display;
use std::os::fd::AsRawFd;
use std::path::Path;

use mio::{Events, Poll};
use nix::errno::Errno as NixErrno;
use nix::sys::stat::{Mode, stat, umask};
use nix::unistd::chdir;

use super::event_loop::{Daemon, EncodedRequests};
use crate::errno::Errno;
use crate::log::{self, DisplayArg, Log, LogContext, info, warning};
use crate::monitor::{Duration, Monitor, MonitorConfig, NamespaceCheck, State, Tables};
use crate::options::{Config, Program, REFUSED};
use crate::sys::agent::Agent;
use crate::sys::clock;
use crate::sys::constants::Constants;
use crate::sys::helper::Conntrackd;
use crate::sys::interface;
use crate::sys::landlock::{Ruleset, access};
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::netns::{self, NamespaceWatch};
use crate::sys::packet::PacketSocket;
use crate::sys::pid_file::{PidFile, PidFileError};
use crate::sys::privileges;
use crate::sys::process::ReadinessNotifier;
use crate::sys::seccomp::{self, Values};
use crate::sys::signals::Signals;
use crate::sys::state_file::StateFile;
use crate::sys::stderr;
use crate::wire::http;

impl<'a> Daemon<'a> {
    /// Opens what the daemon needs. Nothing is reported yet when this returns.
    ///
    /// # Errors
    /// One line that names the thing and what is wrong with it.
    pub fn start(
        config: &Config,
        starter: &'a mut ReadinessNotifier,
        tables: &'a mut Tables,
    ) -> Result<Self, String> {
        // Not to keep a file system from being unmounted.
        chdir("/").map_err(Errno::from).map_err(named("/"))?;
        let namespace = match &config.namespace {
            Some(path) => netns::enter(path).map_err(at("namespace", path)).map(Some)?,
            // Unknown without /proc.
            None => netns::present().ok(),
        };
        interface::check_own_name(&config.interface)
            .map_err(|wants| format!("--monitor_interface \"{}\": {wants}", config.interface))?;
        // The modes of files are given where they are made.
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
        let program = config.find_conntrackd();
        let conntrackd = fork_conntrackd(config, program.as_ref())?;
        let mut constants = Constants::new().map_err(named("memory"))?;
        let pid_file = lock_pid_file(config, &mut constants)?;
        open_log(config, &mut constants)?;
        warn_of_refused_program(program.as_ref());
        warn_of_stranger(pid_file.as_ref());
        let namespace = namespace.and_then(|identity| {
            NamespaceWatch::new(config.namespace.as_deref(), identity, &mut constants)
        });
        let signals = Signals::block().map_err(named("signalfd"))?;
        let groups: &[u32] = if config.no_announce { &netlink::WATCH } else { &netlink::ANNOUNCE };
        let route =
            RouteSocket::open(config.netlink_rcvbuf, groups).map_err(named("netlink socket"))?;
        let packets = open_packets(config)?;
        privileges::drop(config.run_as())?;
        // These are used, and thus checked, as whoever the daemon is now.
        warn_of_open_door(config);
        warn_of_hidden_namespace(namespace.as_ref());
        let state_file = StateFile::new(&config.conf_dir, &mut constants)
            .map_err(at("state file", &config.conf_dir.join("state")))?;
        let agent = Agent::new(&config.agent_socket, &mut constants)
            .map_err(at("agent socket", &config.agent_socket))?;
        let monitor = Box::new(Monitor::new(MonitorConfig {
            interface: config.interface,
            vip: config.vip,
            seed: seed(),
            announce: config.announce().map(|timing| (timing, tables)),
            detect_split_brain: config.detects_split_brain(),
            renotify: config.renotify.clone(),
            sync_conntrack: conntrackd.is_some(),
            check_namespace: namespace.as_ref().map_or(NamespaceCheck::Never, |namespace| {
                let told = namespace.fd().map(|_| NamespaceCheck::WhenMountsChange);
                told.unwrap_or(NamespaceCheck::Every(CHECK_NAMESPACE))
            }),
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
            agent,
            state_file,
            pid_file,
            starter,
            requests: requests(config)?,
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
            leaving: None,
            ending: None,
        };
        daemon.register().map_err(named("epoll"))?;
        check_pid_file(config, daemon.pid_file.as_ref())?;
        daemon.confine(config, constants)?;
        Ok(daemon)
    }

    /// Gives up what is not needed any more now that all is open.
    fn confine(&self, config: &Config, constants: Constants) -> Result<(), String> {
        let addresses = constants.seal().map_err(named("memory"))?;
        if !config.no_landlock && !restrict_files(config).map_err(named("Landlock"))? {
            info!("this kernel has no Landlock");
        }
        privileges::limit().map_err(named("limits"))?;
        let values = Values {
            addresses,
            route: self.route.as_raw_fd(),
            packets: self.packets.as_ref().map(AsRawFd::as_raw_fd),
            pid_file: self.pid_file.as_ref().map(AsRawFd::as_raw_fd),
        };
        if !config.no_seccomp && !seccomp::install(&values).map_err(named("seccomp"))? {
            warning!("there is no seccomp filter for this system");
        }
        Ok(())
    }
}

/// Leaves of the file system only what is written to by name. Tells whether the kernel can do that.
fn restrict_files(config: &Config) -> Result<bool, Errno> {
    let Some(ruleset) = Ruleset::new()? else { return Ok(false) };
    let allow = |path: &Path, access| match ruleset.allow(path, access) {
        // What cannot even be looked at now could not be used later either.
        Err(errno) if errno == Errno::from(NixErrno::EACCES) => Ok(()),
        allowed => allowed,
    };
    // The directory around it, as this one may be deleted and made anew, or mounted over. Of what else is
    // there it is the filter for system calls that lets nothing be named.
    let around = config.conf_dir.join("..");
    allow(&around, access::MAKE_REG | access::WRITE_FILE | access::REMOVE_FILE)?;
    if let Some(log) = &config.log_file {
        allow(parent(log), access::MAKE_REG | access::WRITE_FILE)?;
    }
    if let Some(pid_file) = &config.pid_file {
        allow(parent(pid_file), access::REMOVE_FILE)?;
    }
    ruleset.enforce()?;
    Ok(true)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// As many as there are descriptors to poll.
const EVENTS: usize = 8;

/// How often to look whether the namespace is still there, where nothing tells.
const CHECK_NAMESPACE: Duration = Duration::from_secs(5);

/// Puts the name of a thing before what is wrong with it.
fn named(thing: &str) -> impl FnOnce(Errno) -> String {
    move |errno| format!("{thing}: {errno}")
}

/// The same for one that has a path.
fn at<'a, E: Display>(thing: &'a str, path: &'a Path) -> impl FnOnce(E) -> String + 'a {
    move |error| format!("{thing} {}: {error}", path.display())
}

fn fork_conntrackd(
    config: &Config,
    program: Option<&Program>,
) -> Result<Option<Conntrackd>, String> {
    let Some(program) = program else { return Ok(None) };
    let conntrackd = Conntrackd::fork(&program.path, &config.conf_dir, config.run_as());
    conntrackd.map(Some).map_err(named("process for conntrackd"))
}

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

fn warn_of_stranger(pid_file: Option<&PidFile>) {
    if let Some(stranger) = pid_file.and_then(|pid_file| pid_file.stranger) {
        warning!("replaced the pid file, as it was locked by {}", DisplayArg(stranger));
    }
}

/// It may have been taken away meanwhile.
fn check_pid_file(config: &Config, pid_file: Option<&PidFile>) -> Result<(), String> {
    let (Some(path), Some(pid_file)) = (&config.pid_file, pid_file) else { return Ok(()) };
    if pid_file.is_ours() { Ok(()) } else { Err(at("pid file", path)("taken by another instance")) }
}

/// The user that the daemon is now may be kept from seeing it.
fn warn_of_hidden_namespace(namespace: Option<&NamespaceWatch>) {
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        warning!(
            "it will not be noticed if the network namespace is deleted: {}",
            DisplayArg(errno)
        );
    }
}

/// Who brings a program of his own into root's `PATH` is not to have it run.
fn warn_of_refused_program(program: Option<&Program>) {
    if let Some(path) = program.and_then(|program| program.refused.as_ref()) {
        warning!("{}: {}", DisplayArg(path.display()), DisplayArg(REFUSED));
    }
}

/// Whoever may write to the state file's directory may say what the state is.
fn warn_of_open_door(config: &Config) {
    if let Ok(stat) = stat(&config.conf_dir) {
        let mode = Mode::from_bits_truncate(stat.st_mode);
        if mode.contains(Mode::S_IWOTH) {
            warning!("everybody may write to {}", DisplayArg(config.conf_dir.display()));
        }
    }
}

fn open_log(config: &Config, constants: &mut Constants) -> Result<(), String> {
    // A daemon has none.
    if config.foreground {
        stderr::prepare();
    }
    let file = config
        .log_file
        .as_deref()
        .map(|path| LogFile::open(path, config.run_as(), constants).map_err(at("log file", path)));
    let syslog = config.use_syslog.then(|| Syslog::open(constants).map_err(named("syslog socket")));
    log::open(Log {
        router: config.router_id.clone(),
        level: config.log_level(),
        stderr: file.is_none() && syslog.is_none(),
        file: file.transpose()?,
        syslog: syslog.transpose()?,
    });
    Ok(())
}

fn open_packets(config: &Config) -> Result<Option<PacketSocket>, String> {
    if !config.detects_split_brain() {
        return Ok(None);
    }
    let socket = PacketSocket::open(config.vip.address());
    socket.map(Some).map_err(named("packet socket (--no-announce does without)"))
}

fn requests(config: &Config) -> Result<EncodedRequests, String> {
    let request = |state: State| {
        http::encode(&config.router_id, state.word(config.active_word))
            .map_err(|_| "request too long".to_string())
    };
    Ok(EncodedRequests { active: request(State::Active)?, backup: request(State::Backup)? })
}

/// Differs between processes, and between those that had the same pid.
fn seed() -> u32 {
    let micros = clock::now().total_micros();
    std::process::id().rotate_left(16) ^ u32::try_from(micros & 0xffff_ffff).unwrap_or_default()
}
