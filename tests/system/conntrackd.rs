//! Promises 4 and 13: conntrackd synchronises on each transition and delays nothing else. The program that
//! stands in for it writes down its arguments and does as it is told.

use std::ffi::CString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lab::daemon::{Running, Setup, wait_end};
use lab::files::{Watch, content};
use libtest_mimic::Trial;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        hang,
        commands_of_each_state,
        what_root_may,
        failure,
        notification_does_not_wait,
        newer_transition,
        configuration_that_comes_late,
        configuration_elsewhere,
        output,
        missing_program,
    ]
}

/// Does with `$3`, the flag, what the file of that name has to say.
const STAND_IN: &str = r#"#!/bin/sh
echo "$*" >>"$RECORD/calls"
echo "$(id -u) $(readlink /proc/self/ns/net)" >>"$RECORD/identity"
if [ -e "$RECORD/$3" ]; then . "$RECORD/$3"; fi
"#;

/// A world with a stand-in for conntrackd, and its directory.
pub struct Tracked {
    pub world: World,
    pub record: PathBuf,
}

impl Tracked {
    pub fn new() -> Self {
        Self::with(setup())
    }

    pub fn with(setup: Setup) -> Self {
        let mut setup = setup.with("--enable_conntrackd");
        let record = setup.directory().join("record");
        fs::create_dir(&record).unwrap();
        let program = record.join("conntrackd");
        fs::write(&program, STAND_IN.replace("$RECORD", record.to_str().unwrap())).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", record.display(), std::env::var("PATH").unwrap());
        setup.environment.push(("PATH".into(), path.into()));
        fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
        Self { world: World::with(setup), record }
    }

    /// What the stand-in does when it is called with a flag.
    pub fn when(&self, flag: &str, script: &str) {
        fs::write(self.record.join(flag), script).unwrap();
    }

    /// Has the stand-in wait at a flag. Returns what it waits for to be written to.
    pub fn hold(&self, flag: &str) -> PathBuf {
        let gate = self.record.join("gate");
        let path = CString::new(gate.as_os_str().as_bytes()).unwrap();
        mkfifo(path.as_c_str(), Mode::S_IRWXU).unwrap();
        self.when(flag, &format!("read line <{}", gate.display()));
        gate
    }

    /// The flags of the calls so far.
    pub fn calls(&self) -> String {
        let calls = content(&self.record.join("calls"));
        let config = format!("-C {}/conntrackd.conf ", self.world.setup.conf_dir.display());
        calls.lines().map(|call| call.strip_prefix(&config).expect("the configuration")).collect()
    }

    pub fn wait_calls(&self, calls: &str) {
        let files = Watch::new(&self.record);
        files.until(format!("{calls}, not {}", self.calls()), || {
            (self.calls() == calls).then_some(())
        });
    }

    pub fn wait_synced(&self, keepwatch: &Running<'_>, state: &str) {
        let router = &self.world.setup.router;
        let line = format!("Synced connection tracking state on {state} for router {router}");
        keepwatch.wait_log(&line, 1);
    }
}

pub fn open(gate: &Path) {
    OpenOptions::new().write(true).open(gate).unwrap().write_all(b"\n").unwrap();
}

fn commands_of_each_state() {
    let tracked = Tracked::new();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.calls(), "-t-n");
    tracked.world.set_vip(true);
    tracked.wait_synced(&keepwatch, "primary");
    assert_eq!(tracked.calls(), "-t-n-c-f-R-B");
    assert_eq!((keepwatch.counter("commands"), keepwatch.counter("command_failures")), (6, 0));
    let inside = fs::read_link("/proc/thread-self/ns/net").unwrap();
    for identity in content(&tracked.record.join("identity")).lines() {
        assert_eq!(identity, format!("0 {}", inside.display()));
    }
}

/// With a configuration of root's own: what its socket and old releases want, which are `CAP_DAC_OVERRIDE` and
/// `CAP_NET_ADMIN`.
fn what_root_may() {
    let tracked = Tracked::new();
    tracked.when("-n", "grep ^Cap /proc/self/status");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let log = tracked.world.setup.log();
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        let line = format!("conntrackd: {set}:\\t0000000000001002\n");
        assert!(log.contains(&line), "{log}");
    }
}

fn failure() {
    let tracked = Tracked::new();
    tracked.when("-c", "echo cannot commit >&2; exit 3");
    tracked.when("-f", "kill -SEGV $$");
    tracked.world.set_vip(true);
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "primary");
    assert_eq!(tracked.calls(), "-c-f-R-B", "the rest is run all the same");
    for line in [
        " INFO keepwatch [-] 3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11: conntrackd: cannot commit\n",
        ": conntrackd -c: exit code 3\n",
        ": conntrackd -f: killed by SIGSEGV\n",
    ] {
        assert!(tracked.world.setup.log().contains(line), "{}", tracked.world.setup.log());
    }
    assert_eq!(keepwatch.counter("command_failures"), 2);
}

fn notification_does_not_wait() {
    let tracked = Tracked::new();
    let gate = tracked.hold("-t");
    let keepwatch = tracked.world.setup.start();
    tracked.world.agent.wait_acknowledged("backup");
    tracked.wait_calls("-t");
    tracked.world.set_vip(true);
    keepwatch.wait_state("master");
    tracked.world.agent.wait_acknowledged("master");
    assert_eq!(tracked.calls(), "-t");
    open(&gate);
    tracked.wait_synced(&keepwatch, "primary");
}

fn newer_transition() {
    let tracked = Tracked::new();
    tracked.world.set_vip(true);
    let gate = tracked.hold("-f");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_calls("-c-f");
    for present in [false, true, false] {
        tracked.world.set_vip(present);
        keepwatch.wait_state(crate::world::word(present));
    }
    open(&gate);
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.calls(), "-c-f-t-n", "nothing of the older states");
}

/// Every time, whatever else the kernel tells of the command before: that it was stopped, for one.
fn hang() {
    let tracked = Tracked::new();
    // Neither asking nor killing the shell alone would end it all.
    tracked.when(
        "-t",
        &format!("trap '' TERM; sleep 1000 & echo $! >{}/sleep; wait", tracked.record.display()),
    );
    tracked.when("-n", "kill -STOP $$");
    let keepwatch = tracked.world.setup.start();
    tracked.world.agent.wait_acknowledged("backup");
    // After thirty seconds each.
    let killed = "timed out and killed\n";
    keepwatch.wait_log(&format!("conntrackd -t: {killed}"), 1);
    let sleep = content(&tracked.record.join("sleep"));
    wait_end(sleep.trim().parse().unwrap());
    keepwatch.wait_log(&format!("conntrackd -n: {killed}"), 1);
    tracked.wait_synced(&keepwatch, "backup");
}

fn output() {
    let tracked = Tracked::new();
    let lines = r#"printf "can't\ntwo \033[31m\r\n\377\nin "; sleep 0.1; printf 'pieces\nno end'"#;
    tracked.when("-t", lines);
    tracked.when("-n", r"yes long | tr -d '\n' | head -c 100000");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    for line in ["can't\n", "two \\u{1b}[31m\\r\n", "\u{fffd}\n", "in pieces\n", "no end\n"] {
        let line = format!("conntrackd: {line}");
        keepwatch.wait_log(&line, 1);
    }
    let log = tracked.world.setup.log();
    assert!(log.lines().all(|line| line.len() < 512 && !line.contains('\x1b')), "{log}");
}

/// Neutron's agent writes it after it has started the monitor.
fn configuration_that_comes_late() {
    let tracked = Tracked::new();
    let configuration = tracked.world.setup.conf_dir.join("conntrackd.conf");
    fs::remove_file(&configuration).unwrap();
    let keepwatch = tracked.world.setup.start();
    keepwatch.wait_log("waiting for conntrackd's configuration\n", 1);
    tracked.world.agent.wait_acknowledged("backup");
    assert_eq!(tracked.calls(), "");
    fs::write(&configuration, "").unwrap();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.calls(), "-t-n");
    let log = tracked.world.setup.log();
    assert_eq!(log.matches("configuration").count(), 1, "{log}");
    assert_eq!(keepwatch.counter("command_failures"), 0);
}

/// Beside a plain keepalived conntrackd has its own.
fn configuration_elsewhere() {
    let tracked = Tracked::new();
    fs::remove_file(tracked.world.setup.conf_dir.join("conntrackd.conf")).unwrap();
    let configuration = tracked.world.setup.directory().join("own.conf");
    fs::write(&configuration, "").unwrap();
    let mut command = tracked.world.setup.command();
    command.arg(format!("--conntrackd-conf={}", configuration.display()));
    let keepwatch = tracked.world.setup.adopt(&command.output().unwrap());
    tracked.wait_synced(&keepwatch, "backup");
    let calls = content(&tracked.record.join("calls"));
    let call = |flag| format!("-C {} {flag}\n", configuration.display());
    assert_eq!(calls, call("-t") + &call("-n"));
}

fn missing_program() {
    let tracked = Tracked::new();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    fs::remove_file(tracked.record.join("conntrackd")).unwrap();
    tracked.world.set_vip(true);
    tracked.wait_synced(&keepwatch, "primary");
    tracked.world.agent.wait_acknowledged("master");
    keepwatch.wait_log("conntrackd -B: not started: No such file or directory (ENOENT)\n", 1);
}
