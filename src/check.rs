//! `--check`: reports whether the daemon would work, without creating, changing or sending anything.

use std::fmt::Display;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::SFlag;
use nix::unistd::{AccessFlags, faccessat, geteuid};

use crate::errno::Errno;
use crate::log::printable;
use crate::monitor::{Action, Duration, Input, Monitor, MonitorConfig, State};
use crate::options::{Config, Program, REFUSED};
use crate::sys::file_id::identify_path;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::own_file;
use crate::sys::packet::PacketSocket;
use crate::sys::{atomic_file, clock, interface, netns, process};

/// How long to look for the state.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints each result as soon as it is known, in case the next check hangs. Returns whether all works.
#[must_use]
pub fn check(config: &Config) -> bool {
    let mut report = Report { works: true };
    print("program", &program());
    print("router", &config.router_id);
    if let Some(path) = &config.namespace {
        report.result("namespace", &path.display(), &netns::enter(path).map(|_| "entered"));
    }
    let vip = format!("{} on {}", config.vip, config.interface);
    match interface::check_own_name(&config.interface) {
        Ok(()) => report.result("VIP", &vip, &state(config).map(|state| presence(config, state))),
        Err(expected) => report.result("VIP", &vip, &Err::<&str, _>(expected)),
    }
    let state_file = config.conf_dir.join("state");
    let files = [("state file", Some(&state_file)), ("metrics", config.metrics_file.as_ref())];
    for (what, path) in files {
        if let Some(path) = path {
            let examined = atomic_file::examine(path);
            report.result(what, &path.display(), &examined.map(|()| "can be written"));
        }
    }
    if let Some(socket) = &config.agent_socket {
        report.result("agent", &socket.display(), &Ok::<_, Errno>(agent(socket)));
    }
    for (what, path) in [("pid file", &config.pid_file), ("log file", &config.log_file)] {
        if let Some(path) = path {
            let examined = own_file::examine(path, config.run_as());
            report.result(what, &path.display(), &examined.map(|()| "can be written"));
        }
    }
    if config.detects_split_brain() {
        let opened = PacketSocket::open(config.vip.address()).map(|_| "can be opened");
        report.result("packets", &"announcements and split brain", &opened);
    }
    if let Some(Program { path, refused }) = &config.find_conntrackd() {
        let runs = faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS);
        let runs = runs.map(|()| "can be run").map_err(Errno::from);
        report.result("conntrackd", &path.display(), &runs);
        if let Some(refused) = refused {
            print("conntrackd", &format_args!("{}: {REFUSED}", refused.display()));
        }
    }
    if let Some(path) = &config.hook {
        let checked = config.check_hook(path).map(|()| "can be run");
        report.result("hook", &path.display(), &checked);
    }
    report.works
}

struct Report {
    works: bool,
}

impl Report {
    /// Prints whether something works, and how or why not.
    fn result<T: Display, E: Display>(
        &mut self,
        what: &str,
        name: &dyn Display,
        result: &Result<T, E>,
    ) {
        match result {
            Ok(how) => print_verdict(what, name, "", how),
            Err(why) => {
                self.works = false;
                print_verdict(what, name, "does not work: ", why);
            }
        }
    }
}

// Once in the program, and not for every type.
#[inline(never)]
fn print_verdict(what: &str, name: &dyn Display, verdict: &str, why: &dyn Display) {
    print(what, &format_args!("{name}: {verdict}{why}"));
}

#[inline(never)]
fn print(what: &str, value: &dyn Display) {
    process::print(&format!("{what:<11} {}\n", printable(&value.to_string())));
}

/// The program's own path, however it was reached, and the user who runs it.
fn program() -> String {
    let path = fs::read_link("/proc/self/exe");
    let path =
        path.map_or_else(|error| Errno::from(error).to_string(), |path| path.display().to_string());
    match geteuid().as_raw() {
        0 => format!("{path}: run as root"),
        user => format!("{path}: run as user {user}, not as root"),
    }
}

/// The state that would be reported first, found as the daemon finds it.
fn state(config: &Config) -> Result<State, Errno> {
    let route = RouteSocket::open(config.netlink_rcvbuf, &netlink::WATCH)?;
    let watch = MonitorConfig::new(config.interface, config.vip, route.port());
    let mut monitor = Monitor::new(watch);
    let mut buffer = netlink::buffer();
    let by = clock::now() + CHECK_TIMEOUT;
    // Where events are lost faster than they are read, this would never end.
    while clock::now() < by {
        let received = route.receive(&mut buffer);
        let drained = received.is_none();
        for input in received.into_iter().flatten().chain(drained.then_some(Input::Tick)) {
            for action in monitor.on(&input, clock::now()) {
                match action {
                    Action::RequestDump { dump, sequence } => {
                        route.request(dump, sequence, &config.interface)?;
                    }
                    Action::WriteState(state) => return Ok(state),
                    _ => {}
                }
            }
        }
        if drained {
            poll(&mut [PollFd::new(route.as_fd(), PollFlags::POLLIN)], 100u8)?;
        }
    }
    Err(NixErrno::ETIMEDOUT.into())
}

fn presence(config: &Config, state: State) -> String {
    let there = if state == State::Active { "present" } else { "absent" };
    format!("{there}, would start as {}", state.word(config.active_word))
}

/// Does not connect, as an agent would take that for a notification.
fn agent(path: &Path) -> String {
    match identify_path(path).map(|file| SFlag::from_bits_truncate(file.kind())) {
        Ok(SFlag::S_IFSOCK) => "there".into(),
        Ok(_) => "there, but no socket; would be tried again and again".into(),
        Err(errno) => format!("{errno}; would be waited for"),
    }
}
