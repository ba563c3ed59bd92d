//! Promises 4 and 20: the hook runs for each state, one run after another, until it succeeds, and delays nothing else.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::daemon::{children, wait_end};
use lab::files::{content, look, write_program};
use nix::sys::signal::Signal;

use crate::scripted::{HOOK_TIMED_OUT, helper, hooked, install, tracked, wait_hook_succeeded};
use crate::world::{NO_INTERFACE, World, setup, word};

/// The hook gets exactly these arguments and this environment.
#[apply(trial)]
fn first_state_and_each_change() {
    let hooked = hooked(setup());
    let exact =
        r"{ tr '\0' '\n' </proc/$$/cmdline; tr '\0' '\n' </proc/$$/environ; } >$RECORD/$3.exact";
    hooked.when("BACKUP", exact);
    // A retry is the same call again.
    hooked.when(
        "MASTER",
        &format!("{exact}; echo >>$RECORD/n; [ $(wc -l <$RECORD/n) = 2 ] || exit 1"),
    );
    hooked.when("FAULT", exact);
    let world = &hooked.world;
    let failed = "hook failed for MASTER: exit code 1; retrying";
    world.setup.expect(&[NO_INTERFACE, failed]);
    let keepwatch = world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
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
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    assert_called("MASTER", Some("BACKUP"));
    world.rtnl.delete("ha0");
    wait_hook_succeeded(&keepwatch, "FAULT", 1);
    assert_called("FAULT", Some("MASTER"));
    hooked.wait_calls(&["+BACKUP", "-BACKUP", "+MASTER", "+MASTER", "-MASTER", "+FAULT", "-FAULT"]);
    assert_eq!((keepwatch.counter("hook_runs"), keepwatch.counter("hook_failures")), (4, 1));
}

/// As by keepalived, by shells, and by glibc.
#[apply(trial)]
fn text_without_an_interpreter() {
    let setup = setup();
    let [program, called] = ["text", "called"].map(|name| setup.directory().join(name));
    write_program(&program, &format!("echo \"$1 $4\" >{}\n", called.display()));
    let world = World::with(setup.with(format!("--hook={} first", program.display())));
    let keepwatch = world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert_eq!(content(&called), "first BACKUP\n");
    // Nothing to do.
    write_program(&program, "");
    world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
}

/// At most five runs and that of an exit begin in ten seconds. A state that ends before its turn is skipped.
#[apply(trial)]
fn state_that_ends_before_its_turn() {
    let hooked = hooked(setup());
    let world = &hooked.world;
    world.setup.expect(&[NO_INTERFACE]);
    let keepwatch = world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    for state in ["MASTER", "BACKUP", "MASTER", "BACKUP"] {
        world.set_vip(state == "MASTER");
        wait_hook_succeeded(&keepwatch, state, 1);
    }
    world.deliver(true);
    world.rtnl.delete("ha0");
    wait_hook_succeeded(&keepwatch, "FAULT", 1);
    assert_eq!(hooked.calls()[10..], ["+FAULT", "-FAULT"]);
}

/// As in keepalived, the state's own command comes first. Only a command that has failed is run again.
#[apply(trial)]
fn commands_of_states() {
    let setup = setup();
    let program = setup.directory().join("own");
    let calls = setup.directory().join("hooked/calls");
    let script = format!(
        "#!/bin/sh\necho \"$#: $*\" >>{0}\n[ $1 != 2nd ] || [ $(grep -c 2nd {0}) = 2 ]\n",
        calls.display()
    );
    write_program(&program, &script);
    let own = |state, words| format!("--notify-{state}={} {words}", program.display());
    let setup = setup.with(own("backup", "1st 'two words'")).with(own("master", "2nd \\$1"));
    let hooked = hooked(setup);
    hooked.world.setup.expect(&["hook failed for MASTER: exit code 1; retrying", NO_INTERFACE]);
    let keepwatch = hooked.world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    hooked.world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    hooked.world.rtnl.delete("ha0");
    wait_hook_succeeded(&keepwatch, "FAULT", 1);
    let backup = ["2: 1st two words", "+BACKUP", "-BACKUP"];
    let master = ["2: 2nd $1", "+MASTER", "-MASTER", "2: 2nd $1"];
    assert_eq!(hooked.calls(), [&backup[..], &master, &["+FAULT", "-FAULT"]].concat());
    assert_eq!((keepwatch.counter("hook_runs"), keepwatch.counter("hook_failures")), (4, 1));
}

/// A request for a run anew is one for all commands, also while one of them fails.
#[apply(trial)]
fn commands_that_have_succeeded_run_anew_at_a_reload() {
    let hooked = hooked(setup().with("--notify-backup=false"));
    hooked.world.setup.expect(&["hook failed for BACKUP"]);
    let keepwatch = hooked.world.setup.start();
    keepwatch.wait_log("hook failed for BACKUP", 1);
    hooked.wait_calls(&["+BACKUP", "-BACKUP"]);
    keepwatch.signal(Signal::SIGHUP);
    hooked.wait_calls(&["+BACKUP", "-BACKUP"].repeat(2));
}

/// A state without a command is no run, and nothing is pending.
#[apply(trial)]
fn state_without_a_command() {
    let world = World::with(setup().with("--notify-master=true"));
    let keepwatch = world.setup.start();
    look("no pending run", || keepwatch.status().contains(" hook_pending=none "));
    world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    world.deliver(false);
    world.deliver(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    assert_eq!(keepwatch.counter("hook_runs"), 2);
    let log = world.setup.log();
    assert!(!log.contains("succeeded for BACKUP"), "{log}");
}

#[apply(trial)]
fn variables_of_the_daemon() {
    let mut setup = setup().with("--hook-env=TOKEN").with("--hook-env=ABSENT");
    setup.environment.extend([("TOKEN".into(), "a b".into()), ("OTHER".into(), "c".into())]);
    let hooked = hooked(setup);
    hooked.when("BACKUP", "echo \"$TOKEN,${ABSENT-unset},${OTHER-unset}\" >$RECORD/variables");
    let keepwatch = hooked.world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert_eq!(content(&hooked.record.join("variables")), "a b,unset,unset\n");
}

/// An interpreter may be anywhere in the `PATH` that the hook gets.
#[apply(trial)]
fn path_of_the_daemon() {
    let mut setup = setup().with("--hook-env=PATH");
    let own = setup.directory().join("own-sh");
    symlink("/bin/sh", &own).unwrap();
    let script = setup.directory().join("hook");
    write_program(&script, "#!/usr/bin/env own-sh\nexit 0\n");
    let path = format!("{}:{}", setup.directory().display(), env::var("PATH").unwrap());
    setup.environment.push(("PATH".into(), path.into()));
    let world = World::with(setup.with(format!("--hook={}", script.display())));
    wait_hook_succeeded(&world.setup.start(), "BACKUP", 1);
}

/// At a reboot keepalived removes the VIP, and then SIGTERM comes. Another program that waits for the daemon's end need not
/// wait for a run for MASTER.
#[apply(trial)]
fn exit_waits_for_the_run_for_backup() {
    let hooked = hooked(setup());
    hooked.when("MASTER", "read line <$RECORD/gate");
    hooked.when("BACKUP", "echo >$RECORD/begun; read line <$RECORD/gate");
    let gate = hooked.gate("gate");
    hooked.world.set_vip(true);
    let keepwatch = hooked.world.setup.start();
    hooked.wait_calls(&["+MASTER"]);
    hooked.world.deliver(false);
    keepwatch.signal(Signal::SIGTERM);
    look("the signal to be read", || keepwatch.proc_status("ShdPnd").bytes().all(|b| b == b'0'));
    writeln!(&gate).unwrap();
    hooked.wait("the run for BACKUP", || hooked.record.join("begun").exists());
    writeln!(&gate).unwrap();
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
    assert_eq!(hooked.calls(), ["+MASTER", "-MASTER", "+BACKUP", "-BACKUP"]);
    let log = hooked.world.setup.log();
    assert!(!log.contains("killed") && log.contains("hook succeeded for BACKUP"), "{log}");
}

/// The exit's run is kept back from a burst of runs before.
#[apply(trial)]
fn exit_after_a_burst_of_runs() {
    for first in [true, false] {
        let hooked = hooked(setup());
        let states = |vip| if vip { "MASTER" } else { "BACKUP" };
        if first {
            hooked.world.set_vip(true);
        }
        let keepwatch = hooked.world.setup.start();
        wait_hook_succeeded(&keepwatch, states(first), 1);
        for vip in [!first, first, !first, first] {
            hooked.world.set_vip(vip);
            wait_hook_succeeded(&keepwatch, states(vip), 1);
        }
        hooked.world.deliver(!first);
        // A sixth run would begin at once.
        keepwatch.wait_asleep();
        if !first {
            hooked.world.deliver(false);
        }
        keepwatch.signal(Signal::SIGTERM);
        assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
        assert_eq!(hooked.calls().last().unwrap(), "-BACKUP");
        let log = hooked.world.setup.log();
        assert!(!log.contains("killed"), "{log}");
    }
}

/// A delayed run begins at the exit, or if the predecessor's state has lasted long enough.
#[apply(trial)]
fn delay() {
    let hooked = hooked(setup().with("--hook-delay=3600"));
    let keepwatch = hooked.world.setup.start();
    look("a pending run", || keepwatch.status().contains(" hook_pending=BACKUP "));
    hooked.world.deliver(true);
    hooked.world.deliver(false);
    assert_eq!(hooked.calls(), [""; 0]);
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    assert_eq!(hooked.calls(), ["+BACKUP", "-BACKUP"]);
    let state = File::options().write(true).open(hooked.world.setup.state_file()).unwrap();
    // A daemon sets a time without a fraction.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    state.set_modified(UNIX_EPOCH + Duration::from_secs(now - 3600)).unwrap();
    let keepwatch = hooked.world.setup.spawn();
    wait_hook_succeeded(&keepwatch, "BACKUP", 2);
}

/// A hanging hook delays neither files, agent, signals nor conntrackd, which has a helper of its own.
#[apply(trial)]
fn hang_delays_nothing() {
    let setup = install(setup());
    fs::write(setup.directory().join("hooked/BACKUP"), "kill -STOP $$").unwrap();
    let tracked = tracked(setup);
    let world = &tracked.world;
    world.setup.expect(&["hook still running; killed"]);
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
    // A second signal ends the exit's wait for a run that is not for MASTER.
    keepwatch.signal(Signal::SIGTERM);
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    assert!(!world.setup.log().contains("hook failed"), "the exit waited for the hook");
}

/// The hook has a session of its own, without a terminal. A timeout kills all process groups of that session.
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
    hooked.world.deliver(true);
    keepwatch.wait_log(HOOK_TIMED_OUT, 1);
    wait_end(sleep);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    hooked.wait_calls(&["+BACKUP", "+MASTER", "-MASTER"]);
}

/// The log has the first lines of endless output, and the time limit ends the run.
#[apply(trial)]
fn endless_output() {
    let hooked = hooked(setup().with("--hook-timeout=0.5"));
    hooked.when("BACKUP", "rm $RECORD/BACKUP; exec yes");
    let keepwatch = hooked.world.setup.start();
    keepwatch.wait_log(HOOK_TIMED_OUT, 1);
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    keepwatch.wait_log(" hook: more output discarded\n", 1);
    let log = hooked.world.setup.log();
    assert_eq!(log.matches(": hook: y\n").count(), 64);
    assert_eq!(log.matches(": hook: ").count(), 65, "{log}");
}

/// The output of a failing hook is logged with the line about it, once a minute.
#[apply(trial)]
fn output_of_a_failing_hook() {
    let hooked = hooked(setup());
    hooked.when("BACKUP", "echo why; exit 1");
    let keepwatch = hooked.world.setup.start();
    keepwatch.wait_log("hook failed for BACKUP: exit code 1; retrying", 1);
    keepwatch.wait_counter("hook_failures", 3);
    let log = hooked.world.setup.log();
    assert_eq!(log.matches(": hook: why\n").count(), 1, "{log}");
    // That of a success has its own line.
    hooked.when("BACKUP", "echo well");
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    keepwatch.wait_log(": hook: well\n", 1);
}

/// What a background job prints after its run is not logged as output of the next.
#[apply(trial)]
fn output_between_runs() {
    let hooked = hooked(setup());
    hooked.when(
        "BACKUP",
        "(until [ -e $RECORD/go ]; do sleep 0.01; done; echo late; >$RECORD/printed) &",
    );
    hooked.when("MASTER", "echo now");
    let keepwatch = hooked.world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    fs::write(hooked.record.join("go"), "").unwrap();
    hooked.wait("the job", || hooked.record.join("printed").exists());
    hooked.world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    keepwatch.wait_log(": hook: now\n", 1);
    let log = hooked.world.setup.log();
    assert!(!log.contains("late"), "{log}");
}

const ABSENT: &str =
    "No such file or directory (ENOENT): the program, or the interpreter that its first line names";

/// A missing or broken hook is retried until it runs.
#[apply(trial)]
fn deleted_and_replaced() {
    for (break_it, mend_it, error) in [
        ("mv hook aside", "mv aside hook", ABSENT),
        ("sed -i.aside '1s/$/\\r/' hook", "mv hook.aside hook", ABSENT),
        (
            "mv hook aside; mkdir hook",
            "rmdir hook; mv aside hook",
            "Permission denied (EACCES), as user 0",
        ),
        ("chmod 644 hook", "chmod 755 hook", "Permission denied (EACCES), as user 0"),
        ("chmod 757 hook", "chmod 755 hook", "Operation not permitted (EPERM), as user 0"),
    ] {
        let hooked = hooked(setup());
        let run = |script| {
            let mut shell = Command::new("sh");
            shell.args(["-ec", script]).current_dir(hooked.world.setup.directory());
            assert!(shell.status().unwrap().success());
        };
        let keepwatch = hooked.world.setup.start();
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        run(break_it);
        hooked.world.deliver(true);
        keepwatch.wait_log(&format!("hook failed for MASTER: not started: {error}; retrying\n"), 1);
        run(mend_it);
        wait_hook_succeeded(&keepwatch, "MASTER", 1);
        hooked.wait_calls(&["+BACKUP", "-BACKUP", "+MASTER", "-MASTER"]);
    }
}
