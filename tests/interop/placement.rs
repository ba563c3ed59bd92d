//! Follows the instructions of `docs/neutron.md` to install keepwatch in a deployment and to remove it, with routers in
//! use.

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::daemon::{send, wait_end};
use lab::files::{Watch, content};
use lab::namespace::mount_over;
use nix::sys::signal::Signal;

use crate::agent_server::PATIENCE;
use crate::host::{self, Host, PROGRAM, Router, instruction, monitors};
use crate::l3_agent::{L3Agent, NAME, cmdline};
use crate::rootwrap::{assert_finds, assert_found, assert_is_keepwatch};

/// Neither rootwrap's directories nor sudo's path lead to a wrapper there.
#[apply(trial)]
fn wrapper_in_usr_local_is_not_found() {
    host::run("29.0.0", "from-29", |host| {
        host.follow("program");
        host.follow("passed over");
        let router = [Router::new()];
        for netns in [String::new(), router[0].exec()] {
            let output = host.try_to_follow("check", &netns);
            let report = String::from_utf8_lossy(&output.stdout);
            assert!(!output.status.success() && !report.contains("program "), "{output:?}");
        }
        let _server = host.server();
        let mut agent = host.l3_agent(false, &router);
        let pid = agent.ask("spawn").expect("an active monitor");
        assert_is_original(pid);
        assert_eq!(agent.ask("destroy"), None);
    });
}

#[apply(trial)]
fn directory_and_back() {
    swap("29.0.0", "from-29", "directory");
}

#[apply(trial)]
fn diversion_and_back() {
    swap("28.0.2", "18-to-28", "divert");
}

fn assert_is_original(pid: u32) {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_ne!(program, Path::new(PROGRAM));
}

/// Restarts the agent, which reads rootwrap's configuration and keeps the monitor.
fn restart(host: &Host, agent: L3Agent, router: &[Router], pid: u32) -> L3Agent {
    agent.quit();
    let mut agent = host.l3_agent(true, router);
    assert_eq!(agent.ask("spawn"), Some(pid), "the agent must find the active monitor");
    agent
}

/// Restarts the monitor by the instructions, and changes the VIP while none runs.
fn restart_monitor(host: &Host, agent: &mut L3Agent, router: &Router, pid: u32, vip: bool) -> u32 {
    // The agent must not start another monitor before the VIP has changed.
    send(agent.pid(), Signal::SIGSTOP);
    host.follow("restart");
    wait_end(pid);
    router.set_vip(vip);
    send(agent.pid(), Signal::SIGCONT);
    agent.ask("respawned").expect("an active monitor")
}

/// Starts a second monitor, like an agent without a pid file. Returns its pid, which no file contains.
fn start_second(first: u32) -> u32 {
    let directory = Path::new("/var/lib/neutron/external/pids");
    let pids = Watch::new(directory);
    let pid_file = fs::read_dir(directory).unwrap().next().expect("a pid file").unwrap().path();
    let kept = pid_file.with_extension("kept");
    fs::rename(&pid_file, &kept).unwrap();
    // Up to 28 it writes `NAME (COMMAND)` there.
    let shown = cmdline(first);
    let words = shown.split_once('(').map_or(&*shown, |(_, words)| words).replace(')', "");
    let start = ["-c", "\"$@\" >/dev/null 2>&1 &", "sh"];
    Command::new("/bin/sh").args(start).args(words.split_whitespace()).status().unwrap();
    let second = pids.within(PATIENCE, "its pid", || content(&pid_file).trim().parse().ok());
    fs::rename(kept, pid_file).unwrap();
    assert_is_original(second);
    second
}

/// Replaces Neutron's own monitor and restores it, while the router is in use.
fn swap(release: &'static str, wrapper: &'static str, way: &str) {
    host::run(release, wrapper, |host| {
        let server = host.server();
        let router = [Router::new()];
        router[0].set_vip(true);
        let mut agent = host.l3_agent(true, &router);
        let conf_dir = host.conf_dir(&router[0]);
        agent.ask("spawn").expect("an active monitor");
        let files = Watch::new(&conf_dir);
        let state = || content(&conf_dir.join("state"));
        files.until("the original's state", || (state() == "primary").then_some(()));
        // During the start, the agent may have found the starting process instead.
        let original = agent.ask("spawn").expect("the same monitor");
        assert_is_original(original);
        send(agent.pid(), Signal::SIGSTOP);
        let second = start_second(original);
        send(agent.pid(), Signal::SIGCONT);

        host.follow("program");
        host.follow(way);
        let mut agent = restart(host, agent, &router, original);
        let pid = restart_monitor(host, &mut agent, &router[0], original, false);
        wait_end(second);
        assert_is_keepwatch(pid);
        server.wait_acknowledged("backup");
        assert_eq!(state(), "backup");
        assert_found(host, release, &router[0]);
        let others: Vec<_> = monitors().into_iter().filter(|process| process.pid != pid).collect();
        assert!(others.is_empty(), "{others:?}");

        host.follow(&format!("{way}: back"));
        let mut agent = restart(host, agent, &router, pid);
        let again = restart_monitor(host, &mut agent, &router[0], pid, true);
        assert_is_original(again);
        files.until("the original's state", || (state() == "primary").then_some(()));
        assert_eq!(agent.ask("destroy"), None);
    });
}

#[apply(trial)]
fn diversion_outlasts_an_upgrade() {
    host::run("28.0.2", "18-to-28", |host| {
        host.follow("program");
        host.follow("divert");
        let package = host.directory().join("package");
        fs::create_dir_all(package.join("DEBIAN")).unwrap();
        fs::create_dir_all(package.join("usr/bin")).unwrap();
        let control = "Package: neutron-common\nVersion: 2:99\nArchitecture: all\n\
                       Maintainer: nobody\nDescription: the original\n";
        fs::write(package.join("DEBIAN/control"), control).unwrap();
        fs::write(package.join("usr/bin").join(NAME), "the new original").unwrap();
        let upgrade =
            "dpkg-deb --build package >&2 && dpkg --log=/dev/null --install package.deb >&2";
        let mut shell = Command::new("/bin/sh");
        let output = shell.args(["-c", upgrade]).current_dir(host.directory()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let diverted = Path::new("/usr/bin").join(format!("{NAME}.neutron"));
        assert_eq!(content(&diverted), "the new original");
        assert_found(host, "28.0.2", &Router::new());
        host.follow("divert: back");
        assert_eq!(content(&Path::new("/usr/bin").join(NAME)), "the new original");
    });
}

#[apply(trial)]
fn volumes_of_kolla() {
    host::run("29.0.0", "from-29", |host| {
        let bin = Path::new("/var/lib/kolla/venv/bin");
        fs::create_dir_all(bin).unwrap();
        fs::copy(Path::new("/usr/bin").join(NAME), bin.join(NAME)).unwrap();
        fs::remove_file(Path::new("/usr/bin").join(NAME)).unwrap();
        let rootwrap = Path::new("/etc/neutron/rootwrap.conf");
        let exec_dirs = format!("exec_dirs={},", bin.display());
        fs::write(rootwrap, content(rootwrap).replace("exec_dirs=", &exec_dirs)).unwrap();
        let output = host.try_to_follow("check", "");
        assert!(!output.status.success(), "{output:?}");
        host.follow("files for volumes");
        let volumes = instruction("volumes").lines().filter_map(|line| {
            line.trim().strip_prefix("- \"")?.strip_suffix(":ro\"")?.split_once(':')
        });
        let mut count = 0;
        for (from, to) in volumes {
            // A container engine creates missing mount points.
            if Path::new(from).is_dir() {
                fs::create_dir_all(to).unwrap();
            } else {
                let _ = fs::File::options().create_new(true).write(true).open(to);
            }
            mount_over(Path::new(to), Path::new(from)).unwrap();
            count += 1;
        }
        assert_eq!(count, 3);
        let program = "/usr/local/libexec/keepwatch-neutron/keepwatch";
        assert_finds(host, "29.0.0", &Router::new(), program);

        // Kolla's agent has its pid files elsewhere, where restart-monitors looks without an argument.
        for directory in ["external/pids", "kolla/external/pids"] {
            fs::create_dir_all(Path::new("/var/lib/neutron").join(directory)).unwrap();
        }
        let mut monitor = Command::new(program)
            .args(["--foreground", "--router_id=kolla", "--conf_dir=/var/lib/neutron"])
            .args(["--monitor_interface=lo", "--monitor_cidr=127.0.0.1/8"])
            .arg("--pid_file=/var/lib/neutron/kolla/external/pids/kolla.monitor.pid")
            .spawn()
            .unwrap();
        // One that SIGTERM does not end.
        send(monitor.id(), Signal::SIGSTOP);
        let restart = Path::new(program).with_file_name("restart-monitors");
        let output = Command::new(restart).output().unwrap();
        wait_end(monitor.id());
        monitor.wait().unwrap();
        let ended = format!("ended 1 processes that watched routers: {}\n", monitor.id());
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && report.ends_with(&ended), "{output:?}");
    });
}
