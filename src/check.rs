//! `--check`: reports whether the daemon would work, without creating, changing or sending anything.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use crate::errno::Errno;
use crate::log::{TroubleList, printable};
use crate::monitor::{Action, Input, Monitor, MonitorConfig, State};
use crate::options::{Config, Program, REFUSED};
use crate::sys::helper::Conntrackd;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::packet::PacketSocket;
use crate::sys::{atomic_file, clock, interface, netns, own_file, pid_file, privileges, process};

/// Prints each result as soon as it is known, in case the next check hangs. Returns whether all works.
///
/// As the daemon does, this process enters the namespace, and becomes `--user` before it looks at files.
pub fn check(config: &Config) -> bool {
    let mut report = Report { works: true };
    print("program", program());
    print("name", &config.router_id);
    check_network(config, &mut report);
    check_programs(config, &mut report);
    let user = config.run_as();
    // Which files the daemon, still root, would make for its user, or give to it.
    let is_made = |path: &Option<PathBuf>| {
        path.as_deref().is_some_and(|path| own_file::needs_root(path, user))
    };
    let pid_file_is_made = is_made(&config.pid_file);
    let log_is_made = is_made(&config.log_file) || config.find_left_log().is_some();
    if let Err(step) = privileges::drop(user) {
        report.result("user", "", Err::<&str, _>(step));
    }
    let state_file = config.conf_dir.join("state");
    report.file("state file", Some(&state_file), atomic_file::examine);
    report.file("metrics", config.metrics_file.as_deref(), atomic_file::examine);
    report.file("pid file", config.pid_file.as_deref(), |path| {
        if pid_file_is_made { Ok(()) } else { pid_file::examine(path) }
    });
    report.file("log file", config.log_file.as_deref(), |path| {
        if log_is_made { Ok(()) } else { own_file::examine(path) }
    });
    if config.find_conntrackd().is_some() {
        let path = config.conntrackd_conf();
        match Conntrackd::open(config).map_err(Errno::from) {
            Err(errno @ Errno::NOT_FOUND) => {
                print("conntrackd", format_args!("{}: {}", path.display(), waited_for(errno)));
            }
            opened => report.result("conntrackd", path.display(), opened.map(|_| "can be read")),
        }
    }
    if let Some(socket) = &config.agent_socket {
        print("agent", format_args!("{}: {}", socket.display(), agent(socket)));
    }
    report.works
}

fn check_network(config: &Config, report: &mut Report) {
    if let Some(path) = &config.namespace {
        report.result("namespace", path.display(), netns::enter(path).map(|_| "entered"));
    }
    let vip = format!("{} on {}", config.vip, config.interface);
    match interface::check_own_name(&config.interface) {
        Ok(()) => report.result("VIP", vip, state(config)),
        Err(expected) => report.result("VIP", vip, Err::<&str, _>(expected)),
    }
    if config.detects_split_brain() {
        let opened = PacketSocket::open(config.vip.address()).map(|_| "can be opened");
        report.result("packets", "announcements and split brain", opened);
    }
}

fn check_programs(config: &Config, report: &mut Report) {
    if let Some(Program { path, refused }) = &config.find_conntrackd() {
        let runs = faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS);
        let runs = runs.map(|()| "can be run").map_err(Errno::from);
        report.result("conntrackd", path.display(), runs);
        if let Some(refused) = refused {
            print("conntrackd", format_args!("{}: {REFUSED}", refused.display()));
        }
    }
    if let Some(path) = &config.hook {
        let checked = config.check_hook(path).map(|()| "can be run");
        report.result("hook", path.display(), checked);
    }
}

struct Report {
    works: bool,
}

impl Report {
    /// Prints whether something works, and how or why not.
    fn result(&mut self, what: &str, name: impl Display, how: Result<impl Display, impl Display>) {
        self.works &= how.is_ok();
        match how {
            Ok(how) => print(what, format_args!("{name}: {how}")),
            Err(why) => print(what, format_args!("{name}: does not work: {why}")),
        }
    }

    fn file<E: Display>(
        &mut self,
        what: &str,
        path: Option<&Path>,
        examine: impl FnOnce(&Path) -> Result<(), E>,
    ) {
        if let Some(path) = path {
            self.result(what, path.display(), examine(path).map(|()| "can be written"));
        }
    }
}

fn print(what: &str, value: impl Display) {
    process::print(&format!("{what:<11} {}\n", printable(&value.to_string())));
}

/// The program's own path, however it was reached, and the user who runs it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let path = path.display();
    match geteuid().as_raw() {
        0 => format!("{path}: run as root"),
        user => format!("{path}: run as user {user}, not as root"),
    }
}

/// Whether the VIP is there, and the state that would be reported first, found as the daemon finds it.
fn state(config: &Config) -> Result<String, Errno> {
    let route = RouteSocket::open(config.netlink_rcvbuf, &netlink::WATCH)?;
    let watch = MonitorConfig::new(config.interface, config.vip, route.port());
    let mut monitor = Monitor::new(watch);
    let mut buffer = netlink::buffer();
    let mut found = None;
    loop {
        let received = route.receive(&mut buffer);
        let drained = received.is_none();
        for input in received.into_iter().flatten().chain(drained.then_some(Input::QueueEmpty)) {
            let now = clock::now();
            monitor.handle(&input, now);
            while let Some(action) = monitor.next_action(now) {
                match action {
                    Action::RequestDump { dump, sequence } => {
                        route.request(dump, sequence, &config.interface)?;
                    }
                    Action::WriteState(state) => {
                        found = Some(state);
                        monitor.handle(&Input::StateFile(Ok(state)), now);
                    }
                    _ => {}
                }
            }
        }
        if let (Some(state), None) = (found.filter(|_| drained), monitor.deadline()) {
            let there = if state == State::Active { "present" } else { "absent" };
            let word = state.word(config.active_word);
            let troubles = monitor.status().troubles;
            return Ok(format!("{there}, would start as {word}{}", TroubleList(&troubles)));
        }
        if drained {
            poll(&mut [PollFd::new(route.fd(), PollFlags::POLLIN)], 100u8)?;
        }
    }
}

/// Does not connect, as an agent would take that for a notification.
fn agent(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => "there".into(),
        Ok(_) => "there, but no socket; would be tried again and again".into(),
        Err(error) => waited_for(error.into()),
    }
}

fn waited_for(errno: Errno) -> String {
    format!("{errno}; would be waited for")
}
