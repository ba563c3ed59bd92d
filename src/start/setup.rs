//! From a checked command line to a daemon ready to run: everything is opened here.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mio::{Events, Poll};
use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sys::stat::{FileStat, Mode, umask};
use nix::unistd::{chdir, geteuid};

use super::confine::confine;
use super::files::{c_path, check_directory, examine, refuse_special, remove_leftovers, set_aside};
use super::program::ConntrackdPath;
use super::warnings::find_warnings;
use super::{memory, netns, pid_file, privileges};
use crate::daemon::{Daemon, SOURCES};
use crate::errno::Errno;
use crate::helper::{Conntrackd, Helper, Hook};
use crate::log::{self, Level, Log, Names, of_user, warning};
use crate::metrics::{MetricsFile, labels};
use crate::monitor::{
    ActiveWord, Duration, HookRun, HookTiming, Monitor, MonitorConfig, NamespaceCheck, Predecessor,
    State, Tables,
};
use crate::options::{self, Config};
use crate::sys::keepalived::KeepalivedFile;
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::netns::NamespaceWatch;
use crate::sys::own_file::{self, Refusal};
use crate::sys::{
    agent::Agent,
    clock,
    netlink::{EventSocket, LEAST_LEN, QuestionSocket},
    packet::PacketSocket,
    service_manager::ReadinessNotifier,
    signals,
    state_file::StateFile,
    stderr,
};
use crate::wire::helper::SyncRequest;
use crate::wire::ifname::InterfaceName;

/// How often to check that the namespace exists, where no event reports its deletion.
const CHECK_NAMESPACE: Duration = Duration::from_secs(5);

/// Why the daemon does not start.
#[derive(Debug)]
pub struct StartError {
    /// The thing and its error, in one line.
    pub line: String,
    /// Whether retries fail until an administrator changes something.
    pub lasts: bool,
}

impl From<String> for StartError {
    fn from(line: String) -> Self {
        Self { line, lasts: false }
    }
}

impl<'a> Daemon<'a> {
    /// Opens what the daemon needs, in an order on which its security depends:
    ///
    /// 1. The namespace is entered before any socket is opened.
    /// 2. The helpers are forked before the daemon opens descriptors that they would inherit.
    /// 3. Sockets are opened as root, then root is given up.
    /// 4. Files are opened with the rights that the daemon has from then on. The pid file is first, as a second instance
    ///    must not write to the log.
    /// 5. Last, all rights that the loop does not need are given up for good.
    ///
    /// Nothing is reported to the starter yet. Returns the warnings, too, a line each. A trial, for `--check`, has the same
    /// errors and leaves no file behind.
    ///
    /// # Errors
    /// The step that failed.
    pub fn start(
        config: &'a Config,
        starter: &'a mut ReadinessNotifier,
        tables: &'a mut Tables,
        is_trial: bool,
    ) -> Result<(Self, Vec<String>), StartError> {
        let starting_user = geteuid();
        let entered = enter(config)?;
        let program = config.find_conntrackd();
        let conntrackd = program.as_ref().map(|path| fork_conntrackd(config, path)).transpose()?;
        let hook = config.has_hook().then(|| fork_hook(config)).transpose()?;
        let namespace = entered.and_then(|id| netns::watch(config.namespace.as_deref(), id));
        let (route, packets) = open_sockets(config)?;
        // In the background, standard error is /dev/null.
        let has_stderr = config.foreground && stderr::prepare();
        memory::allow_lock();
        privileges::drop(config.run_as()).map_err(|(step, errno)| StartError {
            line: format!("{step}: {}", Errno::from(errno)),
            lasts: !matches!(errno, NixErrno::EAGAIN | NixErrno::ENOMEM),
        })?;
        let lock = |path: &Path| pid_file::lock(path, is_trial);
        let pid_file = open_if_given("pid file", config.pid_file.as_deref(), lock)?.flatten();
        open_log(config, has_stderr, is_trial)?;
        let warnings = find_warnings(config, program.as_ref(), namespace.as_ref());
        let path = config.state_file();
        let predecessor = find_predecessor(&path, config.active_word);
        let written = Some(&*path).into_iter().chain(config.metrics_file.as_deref());
        written.filter(|_| !is_trial).for_each(remove_leftovers);
        let state_file = StateFile::new(&path).map_err(named_at("state file", &path))?;
        let metrics_file = open_metrics(config, is_trial)?;
        let keepalived = open_if_given(
            "keepalived's pid file",
            config.keepalived_pid_file.as_deref(),
            KeepalivedFile::new,
        )?;
        let agent = open_if_given("agent socket", config.agent_socket.as_deref(), Agent::new)?;
        let mut monitor = monitor_config(config, starter, namespace.as_ref(), predecessor);
        monitor.announce = config.announce().map(|timing| (timing, tables));
        let daemon = Self {
            names: Names { config, state_file: path, user: geteuid(), starter: starting_user },
            events: Events::with_capacity(SOURCES),
            poll: Poll::new().map_err(Errno::from).map_err(named("epoll"))?,
            route,
            questions: QuestionSocket::open().map_err(named("netlink socket"))?,
            clock: clock::watch().map_err(named("timerfd"))?,
            signals: signals::block().map_err(named("signalfd"))?,
            packets,
            namespace,
            keepalived,
            conntrackd,
            hook,
            agent,
            state_file,
            metrics_file,
            pid_file,
            predecessor,
            starter,
            monitor: boxed(monitor),
            reads_frames: false,
            log_waits: false,
            full_log: None,
            exit_reason: None,
        };
        daemon.register().map_err(named("epoll"))?;
        if !is_trial {
            clock::allow_late_timers();
            for line in &warnings {
                warning!("{}", line);
            }
            confine(config)?;
        }
        Ok((daemon, warnings))
    }
}

// In the frame of `start`, the core would make the stack of each daemon 8 kB deeper.
#[inline(never)]
fn boxed(config: MonitorConfig<'_>) -> Box<Monitor<'_>> {
    Box::new(Monitor::new(config))
}

/// Adds the name of a thing to its error, and to a denial the user that was denied.
pub(crate) fn named<E: Into<Refusal>>(thing: &str) -> impl FnOnce(E) -> StartError {
    move |error| {
        let refusal = error.into();
        let lasts = refusal.lasts();
        StartError { line: format!("{thing}: {}", of_user(refusal, geteuid())), lasts }
    }
}

/// Adds the name and the path of a thing to its error.
fn named_at<E: Into<Refusal>>(thing: &str, path: &Path) -> impl FnOnce(E) -> StartError {
    move |error| named(&format!("{thing} {}", path.display()))(error)
}

/// Opens a thing, if its path is configured.
fn open_if_given<T, E: Into<Refusal>>(
    thing: &str,
    path: Option<&Path>,
    open: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<Option<T>, StartError> {
    path.map(|path| open(path).map_err(named_at(thing, path))).transpose()
}

/// Sets working directory and umask, and enters the namespace. Returns its identity.
fn enter(config: &Config) -> Result<Option<FileStat>, StartError> {
    // The working directory's file system must remain unmountable.
    chdir("/").map_err(Errno::from).map_err(named("/"))?;
    // Files get their modes where they are created.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let given = open_if_given("namespace", config.namespace.as_deref(), netns::enter)?;
    check_own_name(&config.interface)
        .map_err(|expected| format!("--monitor_interface {}: {expected}", config.interface))?;
    Ok(given.or_else(netns::present))
}

/// Refuses an alternative name (`ip link property`), as events have only the interface's own, which the error names.
fn check_own_name(name: &InterfaceName) -> Result<(), String> {
    let Ok(own) = if_nametoindex(name.as_bytes()).and_then(if_indextoname) else { return Ok(()) };
    if own.to_bytes() == name.as_bytes() {
        return Ok(());
    }
    Err(format!("expected the interface's own name, {}", own.to_string_lossy()))
}

fn fork_conntrackd(
    config: &Config,
    program: &ConntrackdPath,
) -> Result<Helper<SyncRequest>, StartError> {
    Helper::fork(&mut Conntrackd::new(config, &program.path))
        .map_err(|(step, errno)| named(&format!("conntrackd helper: {step}"))(errno))
}

fn fork_hook(config: &Config) -> Result<Helper<HookRun>, StartError> {
    let programs = || config.hooks().map(|command| command.program.as_path());
    for path in programs() {
        config.check_hook(path).map_err(|refused| StartError {
            line: format!("hook {}: {refused}", path.display()),
            lasts: !options::may_pass(),
        })?;
    }
    let user = config.run_hook_as().user;
    let whom = user.map(|user| format!(" (as user {user}, from user {})", geteuid()));
    let whom = whom.unwrap_or_default();
    let names = programs().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    Helper::fork(&mut Hook::new(config)).map_err(|(step, errno)| {
        let refusal = Refusal::from(errno);
        let step = if step.is_empty() { step } else { format!("{step}: ") };
        StartError { line: format!("hook{whom} {names}: {step}{refusal}"), lasts: refusal.lasts() }
    })
}

/// Opens the netlink socket, and the packet socket if the options need it.
fn open_sockets(config: &Config) -> Result<(EventSocket, Option<PacketSocket>), StartError> {
    let announces = config.announce().is_some();
    // An address that goes in the pause between two others is not announced after a split brain.
    let pauses = announces && config.garp_interval > Duration::ZERO && !config.no_reannounce;
    let filters = config.no_announce && !pauses && !config.no_netlink_filter;
    let only = filters.then_some(config.vip.address());
    let route = EventSocket::open(config.netlink_rcvbuf, only, announces)
        .map_err(named("netlink socket"))?;
    let packets = announces.then(|| PacketSocket::open(config.vip.address()));
    let socket = "packet socket (root or CAP_NET_RAW; not needed with --no-announce alone)";
    Ok((route, packets.transpose().map_err(named(socket))?))
}

fn monitor_config<'a>(
    config: &Config,
    starter: &ReadinessNotifier,
    namespace: Option<&NamespaceWatch>,
    predecessor: Option<Predecessor>,
) -> MonitorConfig<'a> {
    let check_namespace = match namespace.map(NamespaceWatch::fd) {
        None => NamespaceCheck::Never,
        Some(Some(_)) => NamespaceCheck::WhenMountsChange,
        Some(None) => NamespaceCheck::Every(CHECK_NAMESPACE),
    };
    // Differs between processes, also between those that had the same pid.
    let micros = clock::now().total_micros() & 0xffff_ffff;
    let seed = std::process::id().rotate_left(16) ^ u32::try_from(micros).unwrap_or_default();
    MonitorConfig {
        seed,
        announce_changes: !config.no_announce,
        announce_again: !config.no_reannounce,
        detect_split_brain: config.detect_split_brain,
        probe_interval: config.probe,
        notify_agent: config.agent_socket.is_some(),
        predecessor,
        renotify: config.renotify.clone(),
        sync_conntrack: config.enable_conntrackd,
        hook: config
            .has_hook()
            .then_some(HookTiming { limit: config.hook_timeout, delay: config.hook_delay }),
        write_metrics: config.metrics_file.is_some(),
        check_namespace,
        check_files: true,
        check_keepalived: config.keepalived_pid_file.is_some(),
        notify_manager: starter.manager().is_some(),
        watchdog: starter.manager().and_then(|manager| manager.watchdog),
        // The kernel doubles the size that it is given (`socket(7)`).
        queue_len: config.netlink_rcvbuf.saturating_mul(2) / LEAST_LEN,
        ..MonitorConfig::new(config.interface, config.vip)
    }
}

/// Returns the state in a predecessor's file, and the moment of its last change, if that is known. A daemon sets a time
/// without a fraction. A later write, as by Neutron's agent, leaves a fraction, or the time of the inode's change.
fn find_predecessor(path: &Path, word: ActiveWord) -> Option<Predecessor> {
    let file = own_file::open(&c_path(path).ok()?, OFlag::O_RDONLY, geteuid()).ok()?;
    let found = file.metadata().ok()?;
    let (modified, changed) =
        ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    // In the middle of the second, so that slewing of the wall clock does not make it another.
    let micros = found.mtime().saturating_mul(1_000_000).saturating_add(500_000);
    let since = clock::moment_of(micros, clock::now());
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    let state =
        [State::Active, State::Backup].into_iter().find(|state| state.word(word) == text)?;
    // A spare's mark is no time, nor is one ahead.
    let is_set = modified.1 == 0 && modified.0 > 0 && modified != changed;
    let is_past = since <= clock::now() + Duration::from_secs(1);
    Some((state, Some(since).filter(|_| is_set && is_past)))
}

/// Prepares the metrics file. Without a trial, a killed predecessor's is removed.
fn open_metrics(config: &Config, is_trial: bool) -> Result<Option<MetricsFile>, StartError> {
    let file = open_if_given("metrics file", config.metrics_file.as_deref(), |path| {
        refuse_special(path)?;
        let labels = labels(config.router_id.as_str(), &config.interface, &config.vip);
        MetricsFile::new(path, labels).map_err(Refusal::from)
    })?;
    file.iter().filter(|_| !is_trial).for_each(MetricsFile::discard);
    Ok(file)
}

fn open_log(config: &Config, has_stderr: bool, is_trial: bool) -> Result<(), StartError> {
    let path = config.log_file.as_deref();
    if is_trial {
        let examine = |path: &Path| examine(path, LogFile::FLAGS, b"");
        return open_if_given("log file", path, examine).map(drop);
    }
    let open = |path: &Path| {
        let open = || LogFile::open(c_path(path)?);
        open().or_else(|refusal| {
            check_directory(path, refusal)?;
            // Another instance with this log may have set it aside meanwhile.
            open().or_else(|_| set_aside(path).and_then(|()| open()))
        })
    };
    let file = open_if_given("log file", path, open)?;
    let syslog =
        config.use_syslog.then(Syslog::open).transpose().map_err(named("syslog socket"))?;
    let stderr = has_stderr && file.is_none() && syslog.is_none();
    log::open(Log {
        router: config.router_id.clone(),
        level: if config.debug { Level::Debug } else { Level::Info },
        stderr,
        stderr_instead: has_stderr,
        journal: stderr::is_journal(),
        file,
        syslog,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_namespace_is_noticed_within_10_s() {
        assert!(CHECK_NAMESPACE <= Duration::from_secs(10));
    }
}
