//! Promise 20: the processes that run the hook. What it inherits is what the daemon was started with, and none of
//! them is left behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lab::daemon::wait_end;
use lab::files::{content, read_line};
use lab::namespace::{Netns, unbind};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::conntrackd_process::{children, only_child, processes, send};
use crate::hook::{Hooked, wait_told};
use crate::world::setup;

pub fn trials() -> Vec<Trial> {
    lab::trials![
        what_it_inherits,
        nothing_is_inheritable,
        nothing_is_left_behind,
        a_thousand_runs,
        killed_with_a_run,
        killed_while_idle,
        killed_at_once,
        ends_with_the_daemon,
    ]
}

/// Writes down the pid, and becomes a program that does nothing.
const SLEEP: &str = "echo $$ >$RECORD/pid; exec sleep 1000";

/// Waits until the process is of this program.
pub fn wait_exec(pid: u32, name: &str) {
    let comm = PathBuf::from(format!("/proc/{pid}/comm"));
    let deadline = Instant::now() + lab::PATIENCE;
    while content(&comm) != name {
        assert!(Instant::now() < deadline, "{}", content(&comm));
        // Nothing tells of it, so it has to be looked at now and then.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the process has but the standard streams open: at first it loads its library. Returns what they are.
fn wait_loaded(proc: &Path) -> Vec<PathBuf> {
    let deadline = Instant::now() + lab::PATIENCE;
    loop {
        let descriptors: BTreeMap<_, _> = fs::read_dir(proc.join("fd"))
            .unwrap()
            .map(|fd| fd.unwrap().path())
            .filter_map(|fd| Some((fd.file_name()?.to_owned(), fs::read_link(&fd).ok()?)))
            .collect();
        if descriptors.len() == 3 {
            return descriptors.into_values().collect();
        }
        assert!(Instant::now() < deadline, "{descriptors:?}");
        // Nothing tells of it, so it has to be looked at now and then.
        thread::sleep(Duration::from_millis(1));
    }
}

/// As a program that an operator starts: nothing of what limits the daemon limits the hook.
fn what_it_inherits() {
    let hooked = Hooked::new();
    hooked.when("BACKUP", SLEEP);
    let keepwatch = hooked.world.setup.daemonize();
    let pid = hooked.wait_pid("pid");
    let proc = PathBuf::from(format!("/proc/{pid}"));
    // The pid is written down before the script has become another program.
    wait_exec(pid, "sleep\n");
    let targets = wait_loaded(&proc);
    let [input, output, error] = &targets[..] else { panic!("{targets:?}") };
    assert_eq!(input, Path::new("/dev/null"));
    assert!(output == error && output.to_str().unwrap().starts_with("pipe:"), "{targets:?}");
    assert_eq!(fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).unwrap();
    assert_eq!(namespace(&pid.to_string()), namespace("thread-self"));
    let field = |of: &str, name: &str| {
        let status = content(Path::new(&format!("/proc/{of}/status")));
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().to_string()
    };
    for name in ["Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"] {
        assert_eq!(field(&pid.to_string(), name), field("thread-self", name), "{name}");
    }
    for (name, value) in [("Umask", "0022"), ("SigBlk", &"0".repeat(16))] {
        assert_eq!(field(&pid.to_string(), name), value, "{name}");
    }
    let limits = |of: &str| content(Path::new(&format!("/proc/{of}/limits")));
    assert_eq!(limits(&pid.to_string()), limits("self"));
    keepwatch.terminate();
    wait_end(pid);
}

/// What stays in its process group ends with it; what has left that is a service of its own.
/// Whatever a process would execute, no descriptor but the standard streams would stay open. The namespace is named,
/// or found.
fn nothing_is_inheritable() {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    for option in ["--namespace=watched", "--no-announce"] {
        let setup = setup().with(option);
        let metrics = format!("--metrics-file={}", setup.directory().join("prom").display());
        let hooked = Hooked::with(setup.with(metrics));
        Netns::current().bind("watched");
        let keepwatch = hooked.world.setup.start();
        let [upper, lower] = processes(&keepwatch);
        for pid in [keepwatch.pid(), upper, lower] {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
            for path in descriptors.map(|entry| entry.unwrap().path()) {
                let number: u32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
                let info = content(&path);
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t"));
                // That of the agent's connection may be closed meanwhile.
                let Some(flags) = flags else { continue };
                let flags = u32::from_str_radix(flags, 8).unwrap();
                let target = fs::read_link(format!("/proc/{pid}/fd/{number}"));
                assert!(number <= 2 || flags & CLOSED_ON_EXEC != 0, "{pid}: {target:?}");
            }
        }
        drop(keepwatch);
        unbind("watched");
    }
}

fn nothing_is_left_behind() {
    let hooked = Hooked::new();
    hooked.when(
        "MASTER",
        "sleep 1000 & echo $! >$RECORD/sleep
        setsid sh -c 'echo $$ >$RECORD/service; exec sleep 1000' >/dev/null 2>&1 &
        while [ ! -s $RECORD/service ]; do :; done",
    );
    let keepwatch = hooked.world.setup.start();
    let [upper, lower] = processes(&keepwatch);
    hooked.world.set_vip(true);
    wait_told(&keepwatch, "MASTER", 1);
    wait_end(hooked.wait_pid("sleep"));
    let service = hooked.wait_pid("service");
    assert!(children(lower).is_empty(), "a run that nobody has waited for");
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    wait_end(upper);
    wait_end(lower);
    send(service, Signal::SIGKILL);
    wait_end(service);
}

/// Neither a process nor a descriptor nor memory.
fn a_thousand_runs() {
    let hooked = Hooked::new();
    let path = hooked.record.join("told");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let told = File::options().read(true).write(true).open(&path).unwrap();
    let script = format!("#!/bin/sh\necho $3 >{}\n", path.display());
    fs::write(hooked.program(), script).unwrap();
    let keepwatch = hooked.world.setup.start();
    assert_eq!(read_line(&told), "BACKUP\n");
    let [upper, lower] = processes(&keepwatch);
    let holds = || {
        [keepwatch.pid(), upper, lower].map(|pid| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            let status = content(Path::new(&format!("/proc/{pid}/status")));
            let memory = status.lines().find(|line| line.starts_with("VmData:"));
            (descriptors, memory.map(String::from))
        })
    };
    let mut before = None;
    for run in 0..1000 {
        let present = run % 2 == 0;
        hooked.world.set_vip(present);
        assert_eq!(read_line(&told), if present { "MASTER\n" } else { "BACKUP\n" });
        if run == 99 {
            wait_told(&keepwatch, "BACKUP", 51);
            before = Some(holds());
        }
    }
    wait_told(&keepwatch, "BACKUP", 501);
    assert_eq!(Some(holds()), before);
    assert_eq!((children(upper), children(lower)), (vec![lower], vec![]));
}

/// The run counts as failed, and is repeated.
fn killed_with_a_run() {
    for which in 0..2 {
        let hooked = Hooked::new();
        hooked.when("BACKUP", &format!("mv $RECORD/BACKUP $RECORD/once; {SLEEP}"));
        let keepwatch = hooked.world.setup.start();
        let run = hooked.wait_pid("pid");
        let both = processes(&keepwatch);
        send(both[which], Signal::SIGKILL);
        wait_end(both[which]);
        if which == 0 {
            // The other has the run, and first waits for its end.
            send(run, Signal::SIGKILL);
        }
        wait_end(run);
        keepwatch.wait_log("hook helper was killed; restarted\n", 1);
        let how = ["killed by SIGKILL", "aborted, as its helper was killed"][which];
        keepwatch.wait_log(&format!("hook failed for BACKUP: {how}; retrying\n"), 1);
        wait_told(&keepwatch, "BACKUP", 1);
        assert_eq!(keepwatch.counter("hook_failures"), 1);
        hooked.world.set_vip(true);
        wait_told(&keepwatch, "MASTER", 1);
        let calls = hooked.calls();
        let began: Vec<_> = calls.iter().filter(|call| call.0).map(|call| &*call.1).collect();
        assert_eq!(began, ["BACKUP", "BACKUP", "MASTER"]);
    }
}

fn killed_while_idle() {
    for which in 0..2 {
        let hooked = Hooked::new();
        let keepwatch = hooked.world.setup.start();
        wait_told(&keepwatch, "BACKUP", 1);
        let both = processes(&keepwatch);
        send(both[which], Signal::SIGKILL);
        keepwatch.wait_log("hook helper was killed; restarted\n", 1);
        wait_end(both[which]);
        hooked.world.set_vip(true);
        wait_told(&keepwatch, "MASTER", 1);
        assert_eq!(keepwatch.counter("hook_failures"), 0);
        assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    }
}

/// With both of them it is over, and everything else goes on.
fn killed_at_once() {
    let hooked = Hooked::new();
    let keepwatch = hooked.world.setup.start();
    wait_told(&keepwatch, "BACKUP", 1);
    let both = processes(&keepwatch);
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in both {
            send(pid, signal);
        }
    }
    keepwatch.wait_log("hook helper exited; hook disabled\n", 1);
    both.into_iter().for_each(wait_end);
    assert!(keepwatch.children().is_empty(), "a zombie");
    hooked.world.set_vip(true);
    hooked.world.agent.wait_acknowledged("master");
}

/// However that ends.
fn ends_with_the_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let hooked = Hooked::new();
        hooked.when("BACKUP", "sleep 1000 & echo $! >$RECORD/pid; kill -STOP $$");
        let keepwatch = hooked.world.setup.start();
        let sleep = hooked.wait_pid("pid");
        let [upper, lower] = processes(&keepwatch);
        let run = only_child(lower);
        assert!(children(run).contains(&sleep));
        keepwatch.signal(signal);
        keepwatch.wait_exit();
        for pid in [sleep, run, lower, upper] {
            wait_end(pid);
        }
    }
}
