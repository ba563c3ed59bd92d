//! From a checked command line to a daemon ready to run: everything is opened here, in this order.

use std::fmt::Display;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Poll};
use nix::sys::stat::{Mode, umask};

use crate::core::{Monitor, State, Tables, Watch};
use crate::errno::Errno;
use crate::log::{self, Labels, Log, warning};
use crate::options::Config;
use crate::run::{Daemon, PACKETS, ROUTE, Requests, SIGNALS};
use crate::sys::agent::Agent;
use crate::sys::clock;
use crate::sys::log_file::{LogFile, Syslog};
use crate::sys::namespace;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::packet::PacketSocket;
use crate::sys::pid_file::{NoPidFile, PidFile};
use crate::sys::process::Starter;
use crate::sys::signals::Signals;
use crate::sys::state_file::StateFile;
use crate::wire::http;

impl<'a> Daemon<'a> {
    /// Opens what the daemon needs. Nothing is reported yet when this returns.
    ///
    /// # Errors
    /// One line that names the thing and what is wrong with it.
    pub fn start(
        config: &Config,
        starter: &'a mut Starter,
        tables: &'a mut Tables,
    ) -> Result<Self, String> {
        if let Some(path) = &config.namespace {
            namespace::enter(path).map_err(named("namespace", path.display()))?;
        }
        // The modes of files are given where they are made.
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
        let pid_file = config.pid_file.as_deref().map(PidFile::lock).transpose();
        let mut pid_file = pid_file.map_err(|error| no_pid_file(config, &error))?;
        open_log(config)?;
        let signals = Signals::block().map_err(named("signalfd", ""))?;
        let groups: &[u32] =
            if config.announce.is_some() { &netlink::ANNOUNCE } else { &netlink::WATCH };
        let route = RouteSocket::open(config.netlink_rcvbuf, groups)
            .map_err(named("netlink socket", ""))?;
        let packets = open_packets(config)?;
        let state_file = StateFile::new(&config.conf_dir)
            .map_err(named("state file", config.conf_dir.join("state").display()))?;
        let agent = Agent::new(&config.agent_socket)
            .map_err(named("agent socket", config.agent_socket.display()))?;
        let poll = poll(&route, &signals, packets.as_ref()).map_err(named("epoll", ""))?;
        if let (Some(pid_file), Some(path)) = (&mut pid_file, &config.pid_file) {
            pid_file.write().map_err(named("pid file", path.display()))?;
        }
        for option in &config.without_effect {
            warning!("{} does nothing yet", option);
        }
        Ok(Self {
            poll,
            route,
            signals,
            agent,
            state_file,
            _pid_file: pid_file,
            starter,
            requests: requests(config)?,
            packets,
            monitor: Monitor::new(Watch {
                interface: config.interface.clone(),
                vip: config.vip,
                seed: seed(),
                announce: config.announce.map(|tempo| (tempo, tables)),
                detect_split_brain: config.detect_split_brain,
            }),
            labels: Labels { router: config.router_id.clone(), active: config.active_word },
            now: clock::now(),
            leaving: None,
            exit: false,
        })
    }
}

/// Puts the name of a thing before what is wrong with it.
fn named<T: Display>(thing: &str, which: T) -> impl FnOnce(Errno) -> String {
    move |errno| format!("{thing} {which}: {errno}").replace(" :", ":")
}

fn no_pid_file(config: &Config, error: &NoPidFile) -> String {
    let path = config.pid_file.as_deref().unwrap_or("".as_ref()).display();
    match error {
        NoPidFile::Held(pid) => format!("pid file {path}: held by another instance, pid {pid}"),
        NoPidFile::Errno(errno) => format!("pid file {path}: {errno}"),
    }
}

fn open_log(config: &Config) -> Result<(), String> {
    let file = config
        .log_file
        .as_deref()
        .map(|path| LogFile::open(path).map_err(named("log file", path.display())));
    let syslog = config.syslog.then(|| Syslog::open().map_err(named("syslog socket", "")));
    log::open(Log {
        router: config.router_id.clone(),
        level: config.log_level,
        stderr: file.is_none() && syslog.is_none(),
        file: file.transpose()?,
        syslog: syslog.transpose()?,
    });
    Ok(())
}

fn open_packets(config: &Config) -> Result<Option<PacketSocket>, String> {
    if !config.wants_packets() {
        return Ok(None);
    }
    let socket = PacketSocket::open(config.vip.address());
    socket.map(Some).map_err(named("packet socket", "(--no-announce does without)"))
}

fn poll(
    route: &RouteSocket,
    signals: &Signals,
    packets: Option<&PacketSocket>,
) -> Result<Poll, Errno> {
    let poll = Poll::new()?;
    let register =
        |fd, token| poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE);
    register(route.as_raw_fd(), ROUTE)?;
    register(signals.as_raw_fd(), SIGNALS)?;
    if let Some(packets) = packets {
        register(packets.as_raw_fd(), PACKETS)?;
    }
    Ok(poll)
}

fn requests(config: &Config) -> Result<Requests, String> {
    let request = |state: State| {
        http::encode(&config.router_id, state.word(config.active_word))
            .map_err(|_| "request too long".to_string())
    };
    Ok(Requests { active: request(State::Active)?, backup: request(State::Backup)? })
}

/// Differs between processes, and between those that had the same pid.
fn seed() -> u32 {
    let micros = clock::now().total_micros();
    std::process::id().rotate_left(16) ^ u32::try_from(micros & 0xffff_ffff).unwrap_or_default()
}
