//! From a checked command line to a daemon ready to run: everything is opened here.

use std::fmt::Display;
use std::path::Path;

use mio::{Events, Poll};
use nix::sys::stat::{Mode, umask};
use nix::unistd::chdir;

use super::confine::confine;
use super::event_loop::Daemon;
use super::warnings::warn;
use crate::errno::Errno;
use crate::log::{self, Log};
use crate::metrics::MetricsFile;
use crate::monitor::{Duration, Monitor, MonitorConfig, NamespaceCheck, Tables};
use crate::options::{Config, Program};
use crate::sys::agent::Agent;
use crate::sys::atomic_file::{self, AtomicFile};
use crate::sys::clock;
use crate::sys::helper::{Conntrackd, Helper, Hook};
use crate::sys::interface;
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::memory;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::netns::{self, NamespaceWatch};
use crate::sys::own_file;
use crate::sys::packet::PacketSocket;
use crate::sys::pid_file::PidFile;
use crate::sys::privileges;
use crate::sys::service_manager::{ReadinessNotifier, stderr_is_journal};
use crate::sys::signals;
use crate::sys::stderr;

/// As many as there are descriptors to poll.
const EVENTS: usize = 8;
/// How often to check that the namespace is still there, where no event reports its deletion.
const CHECK_NAMESPACE: Duration = Duration::from_secs(5);

impl<'a> Daemon<'a> {
    /// Opens what the daemon needs, in an order on which its security depends:
    ///
    /// 1. The namespace is entered before any socket is opened.
    /// 2. The helpers that run programs are forked before there are descriptors that they would inherit.
    /// 3. What needs root is opened, then root is given up.
    /// 4. Files are opened with the rights that the daemon has from then on: first the pid file, as a second
    ///    instance must not write to the log.
    /// 5. Last, when all is open, what is not needed to run is given up for good.
    ///
    /// Nothing is reported yet when this returns.
    ///
    /// # Errors
    /// One line that names the thing and what is wrong with it.
    pub fn start(
        config: &'a Config,
        starter: &'a mut ReadinessNotifier,
        tables: &'a mut Tables,
    ) -> Result<Self, String> {
        // A daemon must not keep a file system from being unmounted.
        chdir("/").map_err(Errno::from).map_err(named("/"))?;
        let namespace = match &config.namespace {
            Some(path) => Some(netns::enter(path).map_err(at("namespace", path))?),
            None => netns::present(),
        };
        interface::check_own_name(&config.interface)
            .map_err(named(&format!("--monitor_interface {}", config.interface)))?;
        // The modes of files are given where they are created.
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
        let program = config.find_conntrackd();
        let conntrackd = program.as_ref().map(|Program { path, .. }| {
            let forked = Helper::fork(&mut Conntrackd { program: path, config });
            forked.map_err(named("conntrackd helper"))
        });
        let conntrackd = conntrackd.transpose()?;
        let hook = fork_hook(config)?;

        let namespace =
            namespace.and_then(|file| NamespaceWatch::new(config.namespace.as_deref(), file));
        let signals = signals::block().map_err(named("signalfd"))?;
        let groups: &[u32] = if config.no_announce { &netlink::WATCH } else { &netlink::ANNOUNCE };
        let route = RouteSocket::open(config.netlink_rcvbuf, groups);
        let route = route.map_err(named("netlink socket"))?;
        let packets = config.detects_split_brain().then(|| {
            let socket = PacketSocket::open(config.vip.address());
            socket.map_err(named("packet socket (not needed with --no-announce)"))
        });
        let packets = packets.transpose()?;
        // A daemon has no standard error.
        let has_stderr = config.foreground && stderr::prepare();
        memory::allow_lock();
        hand_files_over(config)?;
        privileges::drop(config.run_as())?;

        let pid_file = open_at("pid file", config.pid_file.as_deref(), PidFile::lock)?;
        open_log(config, has_stderr)?;
        warn(config, program.as_ref(), namespace.as_ref());
        let path = config.conf_dir.join("state");
        let state_file = atomic_file::examine(&path).and_then(|()| AtomicFile::new(&path));
        let state_file = state_file.map_err(at("state file", &path))?;
        let metrics_file = open_at("metrics file", config.metrics_file.as_deref(), |path| {
            MetricsFile::new(path, config)
        })?;
        let agent = open_at("agent socket", config.agent_socket.as_deref(), Agent::new)?;
        let monitor = Box::new(Monitor::new(MonitorConfig {
            seed: seed(),
            announce: config.announce().map(|timing| (timing, tables)),
            detect_split_brain: config.detects_split_brain(),
            probe_interval: config.probe,
            notify_agent: agent.is_some(),
            renotify: config.renotify.clone(),
            sync_conntrack: conntrackd.is_some(),
            hook: hook.is_some(),
            write_metrics: metrics_file.is_some(),
            check_namespace: check_namespace(namespace.as_ref()),
            tell_manager: starter.manager().is_some(),
            watchdog: starter.manager().and_then(|manager| manager.watchdog),
            ..MonitorConfig::new(config.interface, config.vip, route.port())
        }));
        let daemon = Self {
            config,
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
            _pid_file: pid_file,
            starter,
            monitor,
            reads_frames: false,
            log_waits: false,
            now: clock::now(),
            ending: None,
        };
        daemon.register().map_err(named("epoll"))?;
        confine(config)?;
        Ok(daemon)
    }
}

/// Turns the error of a thing into one line.
fn named<E: Display>(thing: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{thing}: {error}")
}

/// The same for a thing that has a path.
fn at<E: Display>(thing: &str, path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("{thing} {}: {error}", path.display())
}

/// Opens a thing if there is a path for it.
fn open_at<T, E: Display>(
    thing: &str,
    path: Option<&Path>,
    open: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<Option<T>, String> {
    path.map(|path| open(path).map_err(at(thing, path))).transpose()
}

fn fork_hook(config: &Config) -> Result<Option<Helper>, String> {
    let Some(path) = &config.hook else { return Ok(None) };
    config.check_hook(path).map_err(at("hook", path))?;
    let mut hook = Hook { program: path, config, told: [None; 2] };
    Helper::fork(&mut hook).map(Some).map_err(at("hook", path))
}

/// As root, sees to it that the user that the daemon becomes can open the pid file and the log.
fn hand_files_over(config: &Config) -> Result<(), String> {
    let user = config.run_as();
    for (thing, path) in [("pid file", &config.pid_file), ("log file", &config.log_file)] {
        if let Some(path) = path
            && own_file::needs_root(path, user)
        {
            own_file::make_for(path, user).map_err(at(thing, path))?;
        }
    }
    if let (Some(path), Some(log)) = (&config.log_file, config.find_left_log()) {
        own_file::give(&log, user).map_err(at("log file", path))?;
    }
    Ok(())
}

fn open_log(config: &Config, has_stderr: bool) -> Result<(), String> {
    let file = open_at("log file", config.log_file.as_deref(), LogFile::open)?;
    let syslog =
        config.use_syslog.then(Syslog::open).transpose().map_err(named("syslog socket"))?;
    let stderr = has_stderr && file.is_none() && syslog.is_none();
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

fn check_namespace(namespace: Option<&NamespaceWatch>) -> NamespaceCheck {
    match namespace.map(NamespaceWatch::fd) {
        None => NamespaceCheck::Never,
        Some(Some(_)) => NamespaceCheck::WhenMountsChange,
        Some(None) => NamespaceCheck::Every(CHECK_NAMESPACE),
    }
}

/// Differs between processes, and between those that had the same pid.
fn seed() -> u32 {
    let micros = clock::now().total_micros();
    std::process::id().rotate_left(16) ^ u32::try_from(micros & 0xffff_ffff).unwrap_or_default()
}
