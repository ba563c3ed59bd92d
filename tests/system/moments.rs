//! Promise 3 at each call of a change of state: what happens to the state file just then.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use lab::daemon::Running;
use lab::files::look;
use lab::namespace::Pids;
use lab::traced::{at_call, spawn_up_to};
use nix::libc::{SYS_pread64, SYS_renameat2, SYS_utimensat, SYS_write};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::state_file::{hidden, start, wait_spare};
use crate::world::{NO_AGENT, World, setup, word};

/// The calls of a change of state that touch the state file or its spare. A traced daemon stops before and after each.
const CALLS: [i64; 3] = [SYS_renameat2, SYS_utimensat, SYS_pread64];
/// Those are one, two and one.
const STOPS: usize = 8;

/// Changes the state, and calls `at` at each stop of the daemon until that returns true.
fn trace_change(daemon: &Running<'_>, change: impl FnOnce(), mut at: impl FnMut(usize) -> bool) {
    daemon.wait_asleep();
    let (mut change, mut stops) = (Some(change), 0);
    let is_last = |call, _| {
        // The begin of the trace has stopped a call, too.
        if let Some(change) = change.take() {
            change();
        }
        let is_meant = CALLS.iter().any(|number| number.cast_unsigned() == call);
        stops += usize::from(is_meant);
        is_meant && at(stops - 1)
    };
    at_call(Pid::from_raw(daemon.pid().cast_signed()), is_last, || ());
}

/// Neutron's agent writes the file in place, with either word (`ha_state` in `neutron/agent/l3/ha_router.py`): it opens and
/// empties the file at one call of the daemon, and writes at the same one or a later one. The next changes are right.
#[apply(trial)]
fn agent_writes_in_place_at_any_moment() {
    let world = World::new();
    let daemon = start(&world.setup, &world.setup.directory().join("log"));
    world.agent.wait_acknowledged("backup");
    let mut present = false;
    for (open, write) in (0..STOPS).flat_map(|open| (open..STOPS).map(move |write| (open, write))) {
        for wrong in ["backup", "master"] {
            present = !present;
            let mut file = None;
            let change = || world.set_vip(present);
            trace_change(&daemon, change, |stop| {
                if stop == open {
                    file = fs::File::create(world.setup.state_file()).ok();
                }
                if stop == write {
                    file.take().unwrap().write_all(wrong.as_bytes()).unwrap();
                }
                stop == write
            });
            world.agent.wait_acknowledged(word(present));
            for _ in 0..2 {
                daemon.wait_asleep();
                present = !present;
                world.deliver(present);
                let state = world.setup.state();
                assert_eq!(state, word(present), "{wrong} opened at {open}, written at {write}");
            }
        }
    }
}

/// A daemon is killed at each call. The word is whole, and the next daemon removes what it has left, but nothing of another
/// daemon that runs in the same directory, in another PID namespace.
#[apply(trial)]
fn killed_at_any_moment() {
    let world = World::new();
    let log = world.setup.directory().join("log");
    let mut other = setup();
    other.conf_dir.clone_from(&world.setup.conf_dir);
    other.interface = "other".into();
    other.expect(&[NO_AGENT, "watched interface other not found; waiting"]);
    let pids = Pids::new();
    let neighbour = pids.run(|| start(&other, &world.setup.directory().join("neighbour")));
    let reports = || world.setup.log_in(&log).matches("Notified agent").count();
    let living = wait_spare(&other);
    for stop in 0..STOPS {
        let before = reports();
        let mut daemon = start(&world.setup, &log);
        look("a report", || reports() > before);
        daemon.wait_asleep();
        assert_eq!(hidden(&world.setup).len(), 2, "what the last one left is gone");
        daemon.allow_end();
        trace_change(
            &daemon,
            || world.set_vip(true),
            |at| {
                if at == stop {
                    daemon.signal(Signal::SIGKILL);
                }
                at == stop
            },
        );
        daemon.wait_exit();
        assert!(["backup", "master"].contains(&&*world.setup.state()), "{}", world.setup.state());
        assert_eq!(hidden(&world.setup).len(), 2, "{stop}");
        world.set_vip(false);
    }
    let before = reports();
    let last = start(&world.setup, &log);
    look("a report", || reports() > before);
    assert_eq!(last.terminate().unwrap().code(), Some(0));
    assert_eq!(hidden(&world.setup), [living]);
    assert_eq!(neighbour.terminate().unwrap().code(), Some(0));
    assert_eq!(hidden(&world.setup), [] as [&Path; 0]);
}

/// A start tries whether it can write beside the state file. Another start removes what is not locked.
#[apply(trial)]
fn other_start_removes_the_trial() {
    let world = World::new();
    let (mut command, full) = (Command::new(&world.setup.program), world.setup.command());
    // The pid file would be written before.
    let is_pid_file = |option: &&OsStr| option.as_bytes().starts_with(b"--pid_file");
    command.args(full.get_args().filter(|option| !is_pid_file(option))).arg("--foreground");
    let stopped = spawn_up_to(&mut command, SYS_write);
    // The log may begin before.
    while hidden(&world.setup).is_empty() {
        stopped.go_on_up_to(SYS_write);
    }
    for trial in hidden(&world.setup) {
        fs::remove_file(trial).unwrap();
    }
    let daemon = world.setup.attend(stopped.go_on());
    world.agent.wait_acknowledged("backup");
    assert_eq!(daemon.terminate().unwrap().code(), Some(0));
}
