//! The code of Neutron's L3 agent that starts, watches and stops its monitors does so with keepwatch,
//! by the wrappers in `cross/neutron`, as root and without rootwrap.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::daemon::Setup;
use lab::files::{Directory, Watch, content};
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent_server::{AgentServer, python};
use crate::host::Router;
use crate::l3_agent::{L3Agent, NAME, cmdline, shipped};
use crate::world::{VIP, add_interface};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        before_2021,
        with_eventlet,
        last_in_python,
        newest,
        counted_by_15,
        counted_by_16,
        counted_by_17,
        counted_by_21,
        ipv6_of_13,
        ipv6_of_17,
        ipv6_of_21,
        ipv6_of_26,
        ipv6_of_29,
    ]
}

/// The wrapper of the oldest releases, started by hand in their style.
fn before_2021() {
    add_interface(&Rtnl::new(), "ha0");
    let bin = install("up-to-16");
    let mut setup = Setup::new(bin.path().join(NAME));
    setup.extra = ["--user=0", "--group=0", "--AGENT-root_helper=sudo"].map(Into::into).into();
    let mut command = setup.command();
    let output = command.env("PATH", search_path(&bin)).output().unwrap();
    let keepwatch = setup.adopt(&output);
    assert_eq!(setup.state(), "backup");
    Rtnl::new().add_address("ha0", VIP);
    keepwatch.wait_state("master");
    assert!(cmdline(keepwatch.pid()).contains(&setup.router));
    assert!(keepwatch.counter("announcements") == 0, "not on the watched interface");
    keepwatch.terminate();
}

fn with_eventlet() {
    play("26.0.5", "18-to-28");
}

fn last_in_python() {
    play("28.0.2", "18-to-28");
}

fn newest() {
    play("29.0.0", "from-29");
}

fn counted_by_15() {
    in_private("counted.py", "15.3.4", "up-to-16");
}

fn counted_by_16() {
    in_private("counted.py", "16.4.2", "up-to-16");
}

fn counted_by_17() {
    in_private("counted.py", "17.4.1", "17");
}

fn counted_by_21() {
    in_private("counted.py", "21.2.1", "18-to-28");
}

fn ipv6_of_13() {
    in_private("ipv6.py", "13.0.7", "up-to-16");
}

fn ipv6_of_17() {
    in_private("ipv6.py", "17.4.1", "17");
}

fn ipv6_of_21() {
    in_private("ipv6.py", "21.2.1", "18-to-28");
}

fn ipv6_of_26() {
    in_private("ipv6.py", "26.0.5", "18-to-28");
}

fn ipv6_of_29() {
    in_private("ipv6.py", "29.0.0", "from-29");
}

/// Runs a script with a wrapper and a directory, where it sees no processes of other tests.
fn in_private(script: &str, release: &str, wrapper: &str) {
    let (directory, bin) = (Directory::new(), install(wrapper));
    let python = python(release, script);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(python.get_program()).args(python.get_args());
    let output = command.arg(bin.path().join(NAME)).arg(directory.path()).output();
    assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
}

/// Puts a wrapper where the agent finds it, that runs keepwatch from where it was built.
fn install(wrapper: &str) -> Directory {
    let bin = Directory::new();
    let here = bin.path().join("keepwatch-neutron");
    fs::create_dir(&here).unwrap();
    for name in ["options", "ipv6"] {
        fs::copy(shipped(name), here.join(name)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_keepwatch"), here.join(NAME)).unwrap();
    let script = fs::read_to_string(shipped(wrapper)).unwrap();
    let installed = "/usr/local/libexec/keepwatch-neutron";
    assert!(script.contains(installed));
    let script = script.replace(installed, &format!("'{}'", here.display()));
    fs::write(bin.path().join(NAME), script).unwrap();
    fs::set_permissions(bin.path().join(NAME), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

fn search_path(bin: &Directory) -> String {
    format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap())
}

/// An agent that is root and calls nothing to become that.
fn start(release: &str, bin: &Directory, directory: &Path, router: &str) -> L3Agent {
    let mut command = python(release, "process_manager.py");
    command.arg(directory).arg(router).env("PATH", search_path(bin));
    L3Agent::start(command, directory.join("errors"))
}

/// The life of a monitor: started, told to reload, found by an agent that was restarted itself,
/// killed and started again by the agent, stopped.
fn play(release: &str, wrapper: &str) {
    let (directory, bin) = (Directory::new(), install(wrapper));
    let router = Router::with_id(format!("7e6b5a41-8f0a-4f0e-9c0c-{release:0>12}"));
    let conf_dir = directory.sub(&format!("ha_confs/{}", router.id));
    let files = Watch::new(&conf_dir);
    let wait_state = |state: &str| {
        let is_state = || (content(&conf_dir.join("state")) == state).then_some(());
        files.until(format!("state {state}"), is_state);
    };
    let server = AgentServer::start(release, directory.path());

    let mut agent = start(release, &bin, directory.path(), &router.id);
    let pid = agent.ask("spawn").expect("an active monitor");
    let _killed_in_the_end = Monitor(directory.sub("pids"));
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program, fs::canonicalize(env!("CARGO_BIN_EXE_keepwatch")).unwrap());
    server.wait_state("backup");
    router.set_vip(true);
    server.wait_state("primary");
    wait_state("primary");
    assert_eq!(agent.ask("reload"), Some(pid));
    server.wait("all reported again", |arrivals| arrivals.len() == 3);

    drop(agent);
    let mut agent = start(release, &bin, directory.path(), &router.id);
    assert_eq!(agent.ask("spawn"), Some(pid), "found active, and not started a second time");

    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    let next = agent.ask("respawned").expect("an active monitor");
    assert_ne!(next, pid);
    server.wait("what the next one found", |arrivals| arrivals.len() == 4);
    server.wait_state("primary");

    assert_eq!(agent.ask("destroy"), None, "{}", cmdline(next));
    assert!(fs::read_dir(directory.sub("pids")).unwrap().next().is_none(), "the pid file is left");
    assert_eq!(content(&conf_dir.join("state")), "primary");
    // The agent takes a process whose pid file it has removed for ended.
    let log = conf_dir.join(format!("{NAME}.log"));
    let ends = || content(&log).contains("exiting on SIGTERM").then_some(());
    files.until("the end of the monitor", ends);
}

/// Whatever monitor has its pid file here is killed when the test fails.
struct Monitor(PathBuf);

impl Drop for Monitor {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if let Ok(pid) = content(&entry.path()).parse() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}
