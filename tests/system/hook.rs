//! Promises 4 and 20: the hook is told each state, one run after another, until it succeeds, and delays nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::daemon::{Running, Setup, children, wait_end};
use lab::files::{Watch, content, write_program};
use nix::sys::signal::Signal;

use crate::conntrackd::tracked;
use crate::helpers::helper;
use crate::world::{World, setup, word};

/// Does with `$3`, the hook's state or conntrackd's flag, what the file of that name has to say.
const SCRIPT: &str = r#"#!/bin/sh
echo "+$3" >>"$RECORD/calls"
if [ -e "$RECORD/$3" ]; then . "$RECORD/$3"; fi
echo "-$3" >>"$RECORD/calls"
"#;

/// Makes a program of the script, and the directory that it writes to.
pub fn write_script(program: &Path, record: &Path) {
    fs::create_dir(record).unwrap();
    write_program(program, &SCRIPT.replace("$RECORD", record.to_str().unwrap()));
}

/// Has a setup run the script as its hook.
pub fn install(setup: Setup) -> Setup {
    let [record, program] = ["hooked", "hook"].map(|name| setup.directory().join(name));
    write_script(&program, &record);
    setup.with(format!("--hook={}", program.display()))
}

/// A world with a hook.
pub fn hooked(setup: Setup) -> Scripted {
    let setup = install(setup);
    Scripted { record: setup.directory().join("hooked"), world: World::with(setup) }
}

/// A world in which the script is run, and the directory that it writes to.
pub struct Scripted {
    pub world: World,
    pub record: PathBuf,
}

impl Scripted {
    pub fn program(&self) -> PathBuf {
        self.world.setup.directory().join("hook")
    }

    /// What the script does for a state or a flag.
    pub fn when(&self, what: &str, script: &str) {
        let script = script.replace("$RECORD", self.record.to_str().unwrap());
        let new = self.record.join("new");
        fs::write(&new, script).unwrap();
        // One that runs reads on in the old one.
        fs::rename(new, self.record.join(what)).unwrap();
    }

    /// Of each run so far its beginning, `+` and what it is for, and its end, `-` and the same.
    pub fn calls(&self) -> Vec<String> {
        content(&self.record.join("calls")).lines().map(String::from).collect()
    }

    pub fn wait_calls(&self, calls: &[&str]) {
        self.wait(&format!("{calls:?}"), || self.calls() == calls);
    }

    /// Waits for what the script writes down.
    pub fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        Watch::new(&self.record).until(what, || condition().then_some(()));
    }

    /// Waits for a pid that the script writes down.
    pub fn wait_pid(&self, name: &str) -> u32 {
        let path = self.record.join(name);
        self.wait(name, || content(&path).ends_with('\n'));
        content(&path).trim().parse().unwrap()
    }
}

pub fn wait_told(keepwatch: &Running<'_>, state: &str, times: usize) {
    keepwatch.wait_log(&format!("hook succeeded for {state}"), times);
}

/// The command line and the environment are exactly these.
#[apply(trial)]
fn first_state_and_each_change() {
    let hooked = hooked(setup());
    let exact =
        r"{ tr '\0' '\n' </proc/$$/cmdline; tr '\0' '\n' </proc/$$/environ; } >$RECORD/$3.exact";
    hooked.when("BACKUP", exact);
    // A run that is repeated is the same call again.
    hooked.when(
        "MASTER",
        &format!("{exact}; echo >>$RECORD/n; [ $(wc -l <$RECORD/n) = 2 ] || exit 1"),
    );
    hooked.when("FAULT", exact);
    let world = &hooked.world;
    let keepwatch = world.setup.start();
    wait_told(&keepwatch, "BACKUP", 1);
    let assert_called = |state: &str, previous: Option<&str>| {
        let call = content(&hooked.record.join(format!("{state}.exact")));
        let mut lines: Vec<_> = call.lines().map(String::from).collect();
        let program = hooked.program();
        let words = ["/bin/sh", program.to_str().unwrap(), "INSTANCE"];
        assert_eq!(lines[..3], words);
        assert_eq!(lines[3..6], [&world.setup.router, state, "0"]);
        let mut expected = vec![
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            format!("KEEPWATCH_ROUTER_ID={}", world.setup.router),
            "KEEPWATCH_INTERFACE=ha0".into(),
            "KEEPWATCH_VIP=169.254.0.5/24".into(),
            format!("KEEPWATCH_STATE={state}"),
        ];
        expected.extend(previous.map(|state| format!("KEEPWATCH_PREVIOUS={state}")));
        expected.sort();
        lines[6..].sort();
        assert_eq!(lines[6..], expected);
    };
    assert_called("BACKUP", None);
    world.set_vip(true);
    wait_told(&keepwatch, "MASTER", 1);
    assert_called("MASTER", Some("BACKUP"));
    world.rtnl.delete("ha0");
    wait_told(&keepwatch, "FAULT", 1);
    assert_called("FAULT", Some("MASTER"));
    hooked.wait_calls(&["+BACKUP", "-BACKUP", "+MASTER", "+MASTER", "-MASTER", "+FAULT", "-FAULT"]);
    assert_eq!((keepwatch.counter("hook_runs"), keepwatch.counter("hook_failures")), (4, 1));
}

/// Files, agent, signals and conntrackd, which has a helper of its own, are as prompt as without.
#[apply(trial)]
fn hang_delays_nothing() {
    let setup = install(setup());
    fs::write(setup.directory().join("hooked/BACKUP"), "kill -STOP $$").unwrap();
    let tracked = tracked(setup);
    let world = &tracked.world;
    let keepwatch = world.setup.start();
    for (present, synced) in [(false, "backup"), (true, "primary")] {
        if present {
            world.set_vip(true);
        }
        keepwatch.wait_state(word(present));
        world.agent.wait_acknowledged(word(present));
        tracked.wait_synced(&keepwatch, synced);
    }
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP", 1);
    assert_eq!(keepwatch.counter("hook_runs"), 0);
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    assert!(!world.setup.log().contains("hook failed"), "nobody waited for it");
}

/// A session of its own, without a terminal; what it starts in another process group is of the session, too.
#[apply(trial)]
fn hang_is_killed_with_its_session() {
    let hooked = hooked(setup().with("--hook-timeout=0.5"));
    let script = "trap '' TERM
        read -r pid name state parent group session terminal rest </proc/$$/stat
        echo $pid $group $session $terminal >$RECORD/session
        set -m; sleep 1000 & echo $! >$RECORD/sleep; wait";
    hooked.when("BACKUP", script);
    let keepwatch = hooked.world.setup.start();
    let sleep = hooked.wait_pid("sleep");
    let run = children(helper(&keepwatch))[0];
    assert_eq!(content(&hooked.record.join("session")), format!("{run} {run} {run} 0\n"));
    hooked.world.tell(true);
    keepwatch.wait_log("hook failed for BACKUP: timed out and killed; retrying\n", 1);
    wait_end(sleep);
    wait_told(&keepwatch, "MASTER", 1);
    hooked.wait_calls(&["+BACKUP", "+MASTER", "-MASTER"]);
}

/// The log has its part of it, and the time limit ends it.
#[apply(trial)]
fn endless_output() {
    let hooked = hooked(setup().with("--hook-timeout=0.5"));
    hooked.when("BACKUP", "rm $RECORD/BACKUP; exec yes");
    let keepwatch = hooked.world.setup.start();
    keepwatch.wait_log("hook failed for BACKUP: timed out and killed; retrying\n", 1);
    wait_told(&keepwatch, "BACKUP", 1);
    let log = hooked.world.setup.log();
    assert_eq!(log.matches(": hook: y\n").count(), 64);
    assert_eq!(log.matches(": hook: ").count(), 65, "{log}");
    assert!(log.contains(" hook: more output discarded\n"), "{log}");
}

/// It runs to its end all the same.
#[apply(trial)]
fn more_output_than_is_logged() {
    let hooked = hooked(setup());
    hooked.when("BACKUP", "yes | head -c 4000000");
    wait_told(&hooked.world.setup.start(), "BACKUP", 1);
    assert!(!hooked.world.setup.log().contains("hook failed"));
}

/// Whatever is in its place: it is tried again until it runs.
#[apply(trial)]
fn deleted_and_replaced() {
    for (break_it, mend_it, error) in [
        ("mv hook aside", "mv aside hook", "No such file or directory (ENOENT)"),
        ("mv hook aside; mkdir hook", "rmdir hook; mv aside hook", "Permission denied (EACCES)"),
        ("chmod 644 hook", "chmod 755 hook", "Permission denied (EACCES)"),
        ("chmod 757 hook", "chmod 755 hook", "Operation not permitted (EPERM)"),
    ] {
        let hooked = hooked(setup());
        let run = |script| {
            let mut shell = Command::new("sh");
            shell.args(["-ec", script]).current_dir(hooked.world.setup.directory());
            assert!(shell.status().unwrap().success());
        };
        let keepwatch = hooked.world.setup.start();
        wait_told(&keepwatch, "BACKUP", 1);
        run(break_it);
        hooked.world.tell(true);
        keepwatch.wait_log(&format!("hook failed for MASTER: not started: {error}; retrying\n"), 1);
        run(mend_it);
        wait_told(&keepwatch, "MASTER", 1);
        hooked.wait_calls(&["+BACKUP", "-BACKUP", "+MASTER", "-MASTER"]);
    }
}
