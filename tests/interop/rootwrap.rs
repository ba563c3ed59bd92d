//! A deployment: an agent of an ordinary user, sudo, rootwrap with the filters of each release, its daemon, and
//! privsep.

use std::fs;
use std::path::{Path, PathBuf};

use lab::daemon::{proc_status, send, wait_end};
use lab::files::content;
use lab::trial::table;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::host::{self, Host, PROGRAM, Process, Router, USER, processes, starters};
use crate::l3_agent::cmdline;

#[apply(trial)]
fn releases() -> Vec<Trial> {
    const UP_TO_16: &str = "up-to-16";
    const UP_TO_28: &str = "18-to-28";
    let newer = [
        ("release_26", ("26.0.5", UP_TO_28, "directory")),
        ("release_28", ("28.0.2", UP_TO_28, "divert")),
        ("release_29", ("29.0.0", "from-29", "directory")),
    ];
    // Only `tests/run all` installs them.
    let older = [
        ("release_13", ("13.0.7", UP_TO_16, "divert")),
        ("release_15", ("15.3.4", UP_TO_16, "divert")),
        ("release_16", ("16.4.2", UP_TO_16, "directory")),
        ("release_17", ("17.4.1", "17", "directory")),
        ("release_21", ("21.2.1", UP_TO_28, "divert")),
        ("release_25", ("25.2.3", UP_TO_28, "directory")),
        ("release_27", ("27.0.4", UP_TO_28, "directory")),
    ];
    let older = table(module_path!(), older, lifecycle);
    let older = older.map(|trial| trial.with_ignored_flag(true));
    table(module_path!(), newer, lifecycle).chain(older).collect()
}

/// Whether the agent of a release kills by rootwrap instead of privsep.
fn needs_filter(wrapper: &str) -> bool {
    matches!(wrapper, "up-to-16" | "17")
}

/// Asserts that the agent's way leads to `keepwatch --check`.
pub fn assert_found(host: &Host, release: &str, router: &Router) {
    assert_finds(host, release, router, PROGRAM);
}

/// Asserts that the agent's way leads to this program's `--check`.
pub fn assert_finds(host: &Host, release: &str, router: &Router, program: &str) {
    let in_namespace = ["13", "14", "15"].contains(&&release[..2]);
    let netns = if in_namespace { router.exec() } else { String::new() };
    let output = host.try_to_follow("check", &netns);
    let report = String::from_utf8_lossy(&output.stdout);
    let found = format!("program     {program}: run as root\n");
    assert!(output.status.success() && report.starts_with(&found), "{output:?}");
}

/// Asserts that a process is the installed keepwatch, with the agent's user.
pub fn assert_is_keepwatch(pid: u32) {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program, Path::new(PROGRAM), "{}", cmdline(pid));
    for ids in ["Uid", "Gid"] {
        assert_eq!(proc_status(pid, ids), [&*USER.to_string(); 4].join("\t"), "{ids}");
    }
}

/// A monitor's life, under an agent without rootwrap's daemon and then under one with it.
fn lifecycle((release, wrapper, way): (&'static str, &'static str, &'static str)) {
    host::run(release, wrapper, |host| {
        host.follow("program");
        host.follow(way);
        let active = if wrapper == "up-to-16" { "master" } else { "primary" };
        let server = host.server();
        let router = [Router::new()];
        assert_found(host, release, &router[0]);
        let state = || content(&host.conf_dir(&router[0]).join("state"));

        let mut agent = host.l3_agent(false, &router);
        let pid = agent.ask("spawn").expect("an active monitor");
        assert_is_keepwatch(pid);
        server.wait_acknowledged("backup");
        router[0].set_vip(true);
        server.wait_acknowledged(active);
        assert_eq!(state(), active);
        if needs_filter(wrapper) {
            assert_eq!(agent.answers("destroy"), ["refused"]);
            assert_is_keepwatch(pid);
            host.follow("filter");
            // No filter allows that signal, not even for Neutron's own monitor.
            assert_eq!(agent.answers("reload"), ["refused"]);
            // Rootwrap's filter also matches after an upgrade of the program.
            host.follow("program");
        }
        assert_eq!(agent.ask("destroy"), None);
        wait_end(pid);
        let pid = agent.ask("spawn").expect("an active monitor");
        agent.quit();

        let mut agent = host.l3_agent(true, &router);
        assert_eq!(agent.ask("spawn"), Some(pid), "the agent must find the active monitor");
        let before = server.arrivals().len();
        if needs_filter(wrapper) {
            send(pid, Signal::SIGHUP);
        } else {
            assert_eq!(agent.ask("reload"), Some(pid));
        }
        server.wait("another notification", |arrivals| arrivals.len() > before);
        send(pid, Signal::SIGKILL);
        let next = agent.ask("respawned").expect("an active monitor");
        assert_ne!(next, pid);
        assert_is_keepwatch(next);
        // The starting processes may be about to end. The agent of 29 waits for them when it deletes the router or
        // starts another process.
        for starter in starters() {
            wait_end(starter.pid);
        }
        router[0].set_vip(false);
        server.wait_acknowledged("backup");
        assert_eq!(agent.ask("destroy"), None, "{}", cmdline(next));
        wait_end(next);
        assert_eq!(agent.ask("delete"), None);
        let zombie = |process: &Process| process.parent == agent.pid() && process.state == 'Z';
        let left: Vec<_> = processes().into_iter().filter(zombie).collect();
        assert!(left.is_empty(), "{left:?}");
        let of_router = |path: &PathBuf| path.to_string_lossy().contains(&router[0].id);
        let left: Vec<_> = host.files().into_iter().filter(of_router).collect();
        assert!(left.is_empty(), "{left:?}");
        agent.quit();
        host::wait_deserted();
    });
}
