//! A world with a script as hook or conntrackd, which records its calls.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use lab::daemon::{Running, Setup};
use lab::files::{Watch, content, write_program};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::World;

/// Runs the script in the file named `$3`, which is the hook's state or conntrackd's flag.
const SCRIPT: &str = r#"#!/bin/sh
echo "+$3" >>"$RECORD/calls"
if [ -e "$RECORD/$3" ]; then . "$RECORD/$3"; fi
echo "-$3" >>"$RECORD/calls"
"#;

/// The log line of a hook that `--hook-timeout=0.5` has killed.
pub const HOOK_TIMED_OUT: &str =
    "hook failed for BACKUP: timed out after 0.500s (--hook-timeout) and killed; retrying\n";

/// Writes the script as a program, and creates the directory of its records.
pub fn write_script(program: &Path, record: &Path) {
    fs::create_dir(record).unwrap();
    write_program(program, &SCRIPT.replace("$RECORD", record.to_str().unwrap()));
}

/// Makes the script the hook of a setup.
pub fn install(setup: Setup) -> Setup {
    let [record, program] = ["hooked", "hook"].map(|name| setup.directory().join(name));
    write_script(&program, &record);
    setup.with(format!("--hook={}", program.display()))
}

/// Returns a world with the script as hook.
pub fn hooked(setup: Setup) -> Scripted {
    let setup = install(setup);
    Scripted { record: setup.directory().join("hooked"), world: World::with(setup) }
}

/// Returns a world with the script as conntrackd. It writes files, so it runs without Landlock.
pub fn tracked(setup: Setup) -> Scripted {
    let mut setup = setup.with("--enable_conntrackd").with("--no-landlock");
    let record = setup.directory().join("record");
    write_script(&record.join("conntrackd"), &record);
    let path = format!("{}:{}", record.display(), std::env::var("PATH").unwrap());
    setup.environment.push(("PATH".into(), path.into()));
    fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
    Scripted { world: World::with(setup), record }
}

/// A world with the script, and the directory of its records.
pub struct Scripted {
    pub world: World,
    pub record: PathBuf,
}

impl Scripted {
    pub fn program(&self) -> PathBuf {
        self.world.setup.directory().join("hook")
    }

    /// Creates a fifo at which the script waits: `read line <$RECORD/NAME`. A line opens it.
    pub fn gate(&self, name: &str) -> File {
        let path = self.record.join(name);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Sets what the script does for a state or a flag.
    pub fn when(&self, what: &str, script: &str) {
        let script = script.replace("$RECORD", self.record.to_str().unwrap());
        let new = self.record.join("new");
        fs::write(&new, script).unwrap();
        // A running shell reads on in the old file.
        fs::rename(new, self.record.join(what)).unwrap();
    }

    /// Returns the begin (`+`) and the end (`-`) of each run so far, with its state or flag.
    pub fn calls(&self) -> Vec<String> {
        content(&self.record.join("calls")).lines().map(String::from).collect()
    }

    pub fn wait_calls(&self, calls: &[&str]) {
        self.wait(&format!("{calls:?}"), || self.calls() == calls);
    }

    /// Waits until the script's records satisfy a condition.
    pub fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        Watch::new(&self.record).until(what, || condition().then_some(()));
    }

    /// Waits for a pid that the script records.
    pub fn wait_pid(&self, name: &str) -> u32 {
        let path = self.record.join(name);
        self.wait(name, || content(&path).ends_with('\n'));
        content(&path).trim().parse().unwrap()
    }

    /// Returns the flags of the calls so far.
    pub fn flags(&self) -> String {
        self.calls().iter().filter_map(|call| call.strip_prefix('+')).collect()
    }

    pub fn wait_synced(&self, keepwatch: &Running<'_>, state: &str) {
        let router = &self.world.setup.router;
        let line = format!("Synced connection tracking state on {state} for router {router}");
        keepwatch.wait_log(&line, 1);
    }
}

pub fn wait_hook_succeeded(keepwatch: &Running<'_>, state: &str, times: usize) {
    keepwatch.wait_log(&format!("hook succeeded for {state}"), times);
}

/// Returns the daemon's only helper.
pub fn helper(keepwatch: &Running<'_>) -> u32 {
    let [helper] = keepwatch.children()[..] else { panic!("{:?}", keepwatch.children()) };
    helper
}
