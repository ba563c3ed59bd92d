//! Promises 13 and 20: the helper processes, one for conntrackd and one for the hook. The daemon ends if one of them
//! ends, and none outlives it for long.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use lab::daemon::{children, proc_status, send, wait_end};
use lab::files::{content, look, write_program};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::SockType;
use nix::unistd::{Pid, getpgid};

use crate::scripted::{Scripted, helper, hooked, install, tracked, wait_hook_succeeded};
use crate::starter::careless;
use crate::world::setup;

/// Returns a world whose daemon has both helpers.
fn with_both() -> Scripted {
    tracked(install(setup()))
}

/// Only the daemon itself has the daemon's name.
#[apply(trial)]
fn names() {
    let tracked = with_both();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let name = |pid| content(&PathBuf::from(format!("/proc/{pid}/comm")));
    let helpers = keepwatch.children();
    let names: Vec<_> = helpers.iter().map(|pid| name(*pid)).collect();
    assert_eq!(names, ["keepwatch-sync\n", "keepwatch-hook\n"]);
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert!(helpers.iter().all(|pid| children(*pid).is_empty()), "a run has not been reaped");
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    helpers.into_iter().for_each(wait_end);
}

/// Runs leak neither processes nor descriptors nor memory. Those of conntrackd, as five of the hook may take ten seconds.
#[apply(trial)]
fn many_runs() {
    let tracked = tracked(setup());
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let helper = helper(&keepwatch);
    let holds = || {
        // A sleeping daemon has no connection to the agent.
        keepwatch.wait_asleep();
        [keepwatch.pid(), helper].map(|pid| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            (descriptors, proc_status(pid, "VmData"))
        })
    };
    let run = |rounds| {
        for _ in 0..rounds {
            tracked.world.set_vip(true);
            tracked.wait_synced(&keepwatch, "primary");
            tracked.world.set_vip(false);
            tracked.wait_synced(&keepwatch, "backup");
        }
    };
    run(20);
    let before = holds();
    run(30);
    assert_eq!(holds(), before);
    assert!(children(helper).is_empty());
}

/// A program prints more than one read returns, and exits before the helper reads it.
#[apply(trial)]
fn output_is_read_after_the_exit() {
    let tracked = tracked(setup());
    let mut gate = tracked.gate("gate");
    tracked.when("-t", "read line <$RECORD/gate; head -c 15000 /dev/zero | tr '\\0' x");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_calls(&["+-t"]);
    let helper = helper(&keepwatch);
    let program = children(helper)[0];
    send(helper, Signal::SIGSTOP);
    gate.write_all(b"\n").unwrap();
    wait_end(program);
    send(helper, Signal::SIGCONT);
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.world.setup.log().matches('x').count() / 100, 150);
}

/// The daemon exits with code 1, after state file and agent have the current state.
#[apply(trial)]
fn daemon_ends_with_a_helper() {
    for killed in [&[0][..], &[1], &[0, 1]] {
        let tracked = with_both();
        tracked.world.setup.expect(&["helper gone; exiting", "still running; killed"]);
        let keepwatch = tracked.world.setup.start();
        tracked.wait_synced(&keepwatch, "backup");
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        let helpers = keepwatch.children();
        keepwatch.signal(Signal::SIGSTOP);
        tracked.world.set_vip(true);
        for which in killed {
            send(helpers[*which], Signal::SIGKILL);
        }
        keepwatch.signal(Signal::SIGCONT);
        assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
        assert_eq!(tracked.world.setup.state(), "master");
        assert_eq!(tracked.world.agent.acknowledged().as_deref(), Some("master"));
        let log = tracked.world.setup.log();
        // If both are killed, the daemon may exit before it notices the second.
        let line =
            |which: &usize| format!("{} helper gone; exiting\n", ["conntrackd", "hook"][*which]);
        assert!(killed.iter().any(|which| log.contains(&line(which))), "{log}");
        assert!(!tracked.world.setup.pid_file().exists());
        helpers.into_iter().for_each(wait_end);
    }
}

#[apply(trial)]
fn run_ends_with_its_helper() {
    let hooked = hooked(setup());
    hooked.when("BACKUP", "echo $$ >$RECORD/pid; exec sleep 1000");
    let keepwatch = hooked.world.setup.start();
    let run = hooked.wait_pid("pid");
    send(helper(&keepwatch), Signal::SIGKILL);
    wait_end(run);
    keepwatch.wait_log("hook helper gone; exiting\n", 1);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}

/// A daemon that ends by SIGTERM also logs that it has killed the hook.
#[apply(trial)]
fn run_ends_with_the_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let hooked = hooked(setup());
        hooked.when("MASTER", "sleep 1000 & echo $! >$RECORD/pid; kill -STOP $$");
        hooked.world.set_vip(true);
        hooked.world.setup.expect(&["hook still running; killed"]);
        let keepwatch = hooked.world.setup.start();
        let sleep = hooked.wait_pid("pid");
        let helper = helper(&keepwatch);
        let run = children(helper)[0];
        keepwatch.signal(signal);
        keepwatch.wait_exit();
        [sleep, run, helper].into_iter().for_each(wait_end);
        let killed = hooked.world.setup.log().contains("hook still running; killed\n");
        assert_eq!(killed, signal == Signal::SIGTERM);
    }
}

/// A successor must not run its hook at the same time. The daemon waits for less than a second, which may be over on a busy
/// machine.
#[apply(trial)]
fn lock_is_held_until_the_run_has_ended() {
    assert!(
        (0..50).find_map(|_| holds_lock_until_the_run_has_ended()).expect("a daemon that waits"),
        "the lock was released during the run"
    );
}

/// Returns `None` if the daemon no longer waited when its helper went on.
fn holds_lock_until_the_run_has_ended() -> Option<bool> {
    let hooked = hooked(setup());
    hooked.when("MASTER", "echo $$ >$RECORD/pid; exec sleep 1000");
    hooked.world.set_vip(true);
    let setup = &hooked.world.setup;
    setup.expect(&["hook still running; killed"]);
    let keepwatch = setup.start();
    let run = hooked.wait_pid("pid");
    let lock = File::open(setup.pid_file()).unwrap();
    let is_over = thread::spawn(move || {
        lock.lock().unwrap();
        let status = content(Path::new(&format!("/proc/{run}/status")));
        let is_killed = |line: &str| {
            let pending = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"));
            let signals = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
            signals.is_some_and(|signals| signals & 1 << (Signal::SIGKILL as u32 - 1) != 0)
        };
        // The helper waits a second for a killed run, which on a busy machine may take longer.
        status.is_empty() || status.contains("\nState:\tZ") || status.lines().any(is_killed)
    });
    let (daemon, helper) = (keepwatch.pid(), helper(&keepwatch));
    send(helper, Signal::SIGSTOP);
    keepwatch.signal(Signal::SIGTERM);
    keepwatch.wait_log("exiting on SIGTERM", 1);
    let stat = || content(Path::new(&format!("/proc/{daemon}/stat")));
    look("the daemon to end or wait only for the helper", || {
        let stat = stat();
        stat.is_empty() || stat.contains(") Z ") || stat.contains(") S ")
    });
    let is_waiting = stat().contains(") S ");
    if is_waiting {
        send(helper, Signal::SIGCONT);
    }
    is_waiting.then(|| is_over.join().unwrap())
}

/// A daemon under an attacker's control may send a request during a run.
#[apply(trial)]
fn extra_request_is_ignored() {
    let hooked = hooked(setup());
    let mut gate = hooked.gate("gate");
    hooked.when("BACKUP", "read line <$RECORD/gate");
    let keepwatch = hooked.world.setup.start();
    hooked.wait_calls(&["+BACKUP"]);
    let channel = keepwatch.socket(SockType::SeqPacket);
    let sent = nix::unistd::write(&channel, &[0]).unwrap();
    assert_eq!(sent, 1);
    look("the request to be read", || lab::files::unread(&channel) == 0);
    gate.write_all(b"\n").unwrap();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    hooked.world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    assert_eq!(hooked.calls(), ["+BACKUP", "-BACKUP", "+MASTER", "-MASTER"]);
    assert_eq!(keepwatch.counter("hook_failures"), 0);
}

/// The capabilities of each helper, and those that its programs can have.
#[apply(trial)]
fn capabilities() {
    let tracked = tracked(install(setup()));
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let of_root = proc_status(std::process::id(), "CapBnd");
    // CAP_DAC_OVERRIDE, and CAP_SETGID and CAP_SETUID to open the configuration as its user.
    let [none, dac_override, and_user] = [0, 2, 0xc2].map(|set| format!("{set:016x}"));
    let of_helpers = [[&and_user, &and_user, &dac_override], [&of_root; 3]];
    for (helper, expected) in keepwatch.children().into_iter().zip(of_helpers) {
        let sets = ["CapPrm", "CapEff", "CapBnd"].map(|set| proc_status(helper, set));
        assert_eq!(sets.each_ref(), expected);
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(proc_status(keepwatch.children()[0], set), none);
    }
}

/// After exit code 0, background jobs go on and may print, even after the daemon has ended.
#[apply(trial)]
fn background_jobs_go_on() {
    let hooked = hooked(setup());
    let job = hooked.record.join("job");
    let script = "#!/bin/sh
        echo $$ >$RECORD/$1
        while [ ! -e $RECORD/end ]; do echo $1; sleep 0.01; done
        echo end || exit; echo $1 >>$RECORD/ended\n";
    write_program(&job, &script.replace("$RECORD", hooked.record.to_str().unwrap()));
    let start = "$RECORD/job plain & nohup $RECORD/job nohup & setsid $RECORD/job setsid &
        (setsid $RECORD/job daemon </dev/null >/dev/null 2>&1 &)
        start-stop-daemon -S -b -x $RECORD/job -- service";
    hooked.when("MASTER", start);
    // On a busy machine the jobs print much before the run ends.
    hooked.world.setup.expect(&["hook: more output discarded"]);
    let keepwatch = hooked.world.setup.daemonize();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    hooked.world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    let names = ["plain", "nohup", "setsid", "daemon", "service"];
    for name in names {
        hooked.wait_pid(name);
    }
    for present in [false, true] {
        hooked.world.set_vip(present);
        wait_hook_succeeded(&keepwatch, if present { "MASTER" } else { "BACKUP" }, 1);
    }
    let helper = helper(&keepwatch);
    // As by pkill, which finds the helper as well.
    send(helper, Signal::SIGHUP);
    // A terminal sends SIGINT to the process group.
    let daemon = Pid::from_raw(keepwatch.pid().cast_signed());
    killpg(getpgid(Some(daemon)).unwrap(), Signal::SIGINT).unwrap();
    keepwatch.wait_exit();
    fs::write(hooked.record.join("end"), "").unwrap();
    let ended = || content(&hooked.record.join("ended"));
    hooked.wait("all ten jobs to end", || ended().lines().count() == 10);
    for name in names {
        assert_eq!(ended().lines().filter(|line| *line == name).count(), 2, "{}", ended());
    }
    wait_end(helper);
}

/// Orphans become children of the helper, which reaps them during a run, after it, and after the daemon's end. A failed run
/// ends none of an earlier, successful one.
#[apply(trial)]
fn orphans_are_reaped() {
    let hooked = hooked(setup());
    hooked.when("BACKUP", "(setsid sh -c 'echo $$ >$RECORD/long; read line <$RECORD/gate' &)");
    let script = "mv $RECORD/MASTER $RECORD/once
        (sh -c 'echo $$ >$RECORD/short; read line <$RECORD/first' &)
        (setsid sh -c 'echo $$ >$RECORD/later; read line <$RECORD/second' &)
        read line <$RECORD/end; exit 1";
    hooked.when("MASTER", script);
    let gates = ["gate", "first", "second", "end"].map(|name| hooked.gate(name));
    let open = |gate: &File| writeln!(&*gate).unwrap();
    let keepwatch = hooked.world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    let (long, helper) = (hooked.wait_pid("long"), helper(&keepwatch));
    hooked.world.set_vip(true);
    let [short, later] = ["short", "later"].map(|name| hooked.wait_pid(name));
    let has = |pid| children(helper).contains(&pid);
    look("the orphans", || [long, short, later].into_iter().all(has));
    open(&gates[1]);
    look("the first to be reaped during the run", || !has(short));
    open(&gates[3]);
    keepwatch.wait_log("hook failed for MASTER: exit code 1; retrying", 1);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    assert!(has(long) && has(later), "a job of another session has ended");
    open(&gates[2]);
    look("the second to be reaped after the run", || !has(later));
    hooked.when("MASTER", "(setsid sh -c 'echo $$ >$RECORD/last; read line <$RECORD/first' &)");
    keepwatch.signal(Signal::SIGHUP);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    let last = hooked.wait_pid("last");
    keepwatch.terminate();
    open(&gates[1]);
    look("the last to be reaped after the daemon's end", || !has(last));
    assert!(has(long), "the long job has ended");
    open(&gates[0]);
    wait_end(helper);
}

/// Processes in the session of a failed run are killed before the retry, and the log says so.
#[apply(trial)]
fn failed_run_is_cleaned_up() {
    let hooked = hooked(setup());
    let script = "mv $RECORD/BACKUP $RECORD/once
        odd=$RECORD/$(printf '\\377'); cp /bin/sleep $odd
        bash -c 'set -m; $0 1000 & echo $! >$RECORD/sleep' $odd
        setsid -f sh -c 'echo $$ >$RECORD/service; exec sleep 1000'
        while [ ! -s $RECORD/service ]; do sleep 0.01; done; exit 1";
    hooked.when("BACKUP", script);
    let keepwatch = hooked.world.setup.start();
    for line in
        [" failed for BACKUP: exit code 1; retrying", ": processes of the failed run killed: 1"]
    {
        keepwatch.wait_log(&format!("hook{line}\n"), 1);
    }
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    wait_end(hooked.wait_pid("sleep"));
    let service = hooked.wait_pid("service");
    assert!(
        Path::new(&format!("/proc/{service}")).exists(),
        "a process outside the session was killed"
    );
    send(service, Signal::SIGKILL);
}

/// The hook has neither the daemon's restrictions nor the signals that the daemon's starter ignores or blocks.
#[apply(trial)]
fn hook_inherits_nothing() {
    let hooked = hooked(setup());
    let describe = r"readlink /proc/self/cwd /proc/self/fd/0 /proc/self/ns/net; cat /proc/self/limits
        grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status";
    // Seven digits are 28 signals; the realtime ones follow.
    let signals = r"sed -nE 's/^Sig(Blk|Ign).*(.{7})$/\1 \2/p' /proc/self/status";
    hooked.when(
        "BACKUP",
        &format!(
            "({describe}) >$RECORD/described; umask >$RECORD/umask; {signals} >$RECORD/signals
        ls /proc/self/fd >$RECORD/descriptors"
        ),
    );
    let keepwatch = hooked.world.setup.daemonize_with(careless);
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    let mut shell = Command::new("sh");
    shell.args(["-c", describe]).current_dir("/").stdin(Stdio::null());
    let ours = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    assert_eq!(content(&hooked.record.join("described")), ours);
    assert_eq!(content(&hooked.record.join("umask")), "0022\n");
    assert_eq!(content(&hooked.record.join("signals")), "Blk 0000000\nIgn 0000000\n");
    // Descriptor 3 is the directory that `ls` reads.
    assert_eq!(content(&hooked.record.join("descriptors")), "0\n1\n2\n3\n");
}

/// Hundreds of daemons wake up together. A hook's timers stay exact.
#[apply(trial)]
fn only_the_daemon_has_late_timers() {
    let hooked = hooked(setup());
    let keepwatch = hooked.world.setup.start();
    keepwatch.wait_log("Wrote", 1);
    let slack = |pid| content(Path::new(&format!("/proc/{pid}/timerslack_ns")));
    assert_eq!(slack(keepwatch.pid()), "2000000\n");
    assert_eq!(slack(helper(&keepwatch)), slack(std::process::id()));
}
