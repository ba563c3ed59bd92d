//! Promise 13: the processes that run conntrackd's commands. One is restarted when it is killed, none is left
//! behind, and a command that prints without end holds nothing up.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lab::daemon::{Running, wait_end};
use lab::files::content;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::conntrackd::{Tracked, open};
use crate::starter::careless;

pub fn trials() -> Vec<Trial> {
    lab::trials![
        names,
        nothing_is_left_behind,
        command_ends_with_the_daemon,
        output_left_behind,
        endless_output,
        endless_output_to_nobody,
        killed_with_a_command,
        killed_while_idle,
        killed_again_and_again,
        killed_at_once,
        careless_starter,
    ]
}

pub fn children(pid: u32) -> Vec<u32> {
    let list = content(&PathBuf::from(format!("/proc/{pid}/task/{pid}/children")));
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The process that begins the other anew, and the one that runs the commands.
pub fn processes(keepwatch: &Running<'_>) -> [u32; 2] {
    let [upper] = keepwatch.children()[..] else { panic!("{:?}", keepwatch.children()) };
    [upper, only_child(upper)]
}

pub fn only_child(pid: u32) -> u32 {
    let deadline = Instant::now() + lab::PATIENCE;
    loop {
        if let [child] = children(pid)[..] {
            return child;
        }
        assert!(Instant::now() < deadline, "{:?}", children(pid));
        // Nothing tells of it, so it has to be looked at now and then.
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// Whoever looks for the daemon by its name finds the daemon alone.
fn names() {
    let tracked = Tracked::new();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    for pid in processes(&keepwatch) {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        assert_eq!(content(&proc.join("comm")), "keepwatch-sync\n");
    }
}

fn nothing_is_left_behind() {
    let tracked = Tracked::new();
    tracked.when("-n", &format!("sleep 1000 & echo $! >{}/sleep", tracked.record.display()));
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let [upper, lower] = processes(&keepwatch);
    assert!(children(lower).is_empty(), "a command that nobody has waited for");
    wait_end(recorded(&tracked, "sleep"));
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    wait_end(upper);
    wait_end(lower);
}

/// A pid that a command has written down.
fn recorded(tracked: &Tracked, name: &str) -> u32 {
    content(&tracked.record.join(name)).trim().parse().unwrap()
}

/// Has the command that a flag stands for write down its pid, and do something.
fn when(tracked: &Tracked, flag: &str, script: &str) -> PathBuf {
    let pid = tracked.record.join("pid");
    let gate = tracked.hold("gated");
    let script = format!("echo $$ >{}; {script}", pid.display());
    tracked.when(flag, &script);
    gate
}

fn command_ends_with_the_daemon() {
    let tracked = Tracked::new();
    // It does not even hang in the usual way.
    when(&tracked, "-t", "kill -STOP $$");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_calls("-t");
    let [upper, lower] = processes(&keepwatch);
    let command = only_child(lower);
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    for pid in [command, lower, upper] {
        wait_end(pid);
    }
}

/// A program prints as much as a pipe takes and ends before anybody reads: all of it is logged or counted.
fn output_left_behind() {
    const BYTES: usize = 60_000;
    let tracked = Tracked::new();
    let gate = tracked.hold("-t");
    let print = format!("read line <{}; head -c {BYTES} /dev/zero | tr '\\0' x", gate.display());
    tracked.when("-t", &print);
    let keepwatch = tracked.world.setup.start();
    let [_, runner] = processes(&keepwatch);
    let program = only_child(runner);
    send(runner, Signal::SIGSTOP);
    open(&gate);
    let status = PathBuf::from(format!("/proc/{program}/stat"));
    let deadline = Instant::now() + lab::PATIENCE;
    while !content(&status).contains(") Z ") {
        assert!(Instant::now() < deadline, "{}", content(&status));
        // Nothing tells of it, so it has to be looked at now and then.
        thread::sleep(Duration::from_millis(1));
    }
    send(runner, Signal::SIGCONT);
    tracked.wait_synced(&keepwatch, "backup");
    let log = tracked.world.setup.log();
    let lines =
        log.lines().filter_map(|line| line.split_once("conntrackd: ")).map(|(_, line)| line);
    let counted = lines.map(|line| match line.split_once(" more bytes of output discarded") {
        Some((discarded, _)) => discarded.parse().unwrap(),
        None => line.bytes().filter(|byte| *byte == b'x').count(),
    });
    assert_eq!(counted.sum::<usize>(), BYTES, "{log}");
}

/// The log has its part of it, and the daemon is as prompt as ever.
fn endless_output() {
    let tracked = Tracked::new();
    tracked.when("-t", "exec yes");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_calls("-t");
    tracked.world.set_vip(true);
    keepwatch.wait_state("master");
    tracked.world.agent.wait_acknowledged("master");
    tracked.wait_synced(&keepwatch, "primary");
    // Nobody reads on for ever.
    keepwatch.wait_log("conntrackd -t: killed by SIGPIPE\n", 1);
    let log = tracked.world.setup.log();
    assert_eq!(log.matches(": conntrackd: y\n").count(), 64);
    assert_eq!(log.matches(" more bytes of output discarded\n").count(), 1, "{log}");
    assert!(log.len() < 1 << 14, "{}", log.len());
}

/// A program that does not care is ended like any other that hangs; here, with the daemon.
fn endless_output_to_nobody() {
    let tracked = Tracked::new();
    tracked.when("-t", "trap '' PIPE; while :; do echo a line of some length; done 2>&1");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_calls("-t");
    for present in [true, false, true] {
        tracked.world.set_vip(present);
        keepwatch.wait_state(crate::world::word(present));
    }
    keepwatch.wait_log(": conntrackd: a line of some length\n", 64);
    let [upper, lower] = processes(&keepwatch);
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    wait_end(upper);
    wait_end(lower);
}

const BEGUN_ANEW: &str = "conntrackd helper was killed; restarted\n";

/// The command counts as failed, and the rest is run.
fn killed_with_a_command() {
    let tracked = Tracked::new();
    let gate = when(&tracked, "-t", &format!("sleep 1000 <{}/gate", tracked.record.display()));
    let keepwatch = tracked.world.setup.start();
    // Now the command and its pid are there.
    open(&gate);
    tracked.wait_calls("-t");
    let [upper, lower] = processes(&keepwatch);
    let command = only_child(lower);
    send(lower, Signal::SIGKILL);
    keepwatch.wait_log(BEGUN_ANEW, 1);
    keepwatch.wait_log("conntrackd -t: aborted, as its helper was killed\n", 1);
    tracked.wait_synced(&keepwatch, "backup");
    wait_end(command);
    assert_eq!(tracked.calls(), "-t-n");
    assert_eq!(processes(&keepwatch)[0], upper);
    assert!(children(processes(&keepwatch)[1]).is_empty());
    assert_eq!(keepwatch.counter("command_failures"), 1);
    tracked.world.set_vip(true);
    tracked.wait_synced(&keepwatch, "primary");
    assert_eq!(keepwatch.counter("command_failures"), 1);
}

/// Whichever of the two it is.
fn killed_while_idle() {
    for which in 0..2 {
        let tracked = Tracked::new();
        let keepwatch = tracked.world.setup.start();
        tracked.wait_synced(&keepwatch, "backup");
        let killed = processes(&keepwatch)[which];
        send(killed, Signal::SIGKILL);
        keepwatch.wait_log(BEGUN_ANEW, 1);
        wait_end(killed);
        tracked.world.set_vip(true);
        tracked.wait_synced(&keepwatch, "primary");
        assert_eq!(tracked.calls(), "-t-n-c-f-R-B");
        assert_eq!(keepwatch.counter("command_failures"), 0);
        // No zombie of what is the daemon's child, nor of what is that one's.
        let expected: &[usize] = if which == 0 { &[] } else { &[1] };
        let grandchildren: Vec<_> =
            keepwatch.children().into_iter().map(|child| children(child).len()).collect();
        assert_eq!(grandchildren, expected);
        assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    }
}

/// A line for the first, and the newest state is synchronised all the same.
fn killed_again_and_again() {
    let tracked = Tracked::new();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let [upper, mut lower] = processes(&keepwatch);
    for _ in 0..5 {
        let killed = lower;
        send(killed, Signal::SIGKILL);
        wait_end(killed);
        // It is among the children until it has been waited for.
        while lower == killed {
            lower = only_child(upper);
        }
    }
    tracked.world.set_vip(true);
    tracked.wait_synced(&keepwatch, "primary");
    assert!(tracked.calls().ends_with("-c-f-R-B"));
    assert_eq!(tracked.world.setup.log().matches(BEGUN_ANEW).count(), 1);
}

/// With both of them it is over.
fn killed_at_once() {
    let tracked = Tracked::new();
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let both = processes(&keepwatch);
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in both {
            send(pid, signal);
        }
    }
    keepwatch.wait_log("conntrackd helper exited; sync disabled\n", 1);
    both.into_iter().for_each(wait_end);
    assert!(keepwatch.children().is_empty(), "a zombie");
    tracked.world.set_vip(true);
    tracked.world.agent.wait_acknowledged("master");
    assert_eq!(tracked.calls(), "-t-n");
}

/// Commands have their signals as programs expect them.
fn careless_starter() {
    let tracked = Tracked::new();
    let record = tracked.record.join("signals");
    tracked.when("-t", &format!("grep -E '^Sig(Blk|Ign)' /proc/self/status >{}", record.display()));
    let output = careless(tracked.world.setup.command()).output().unwrap();
    let keepwatch = tracked.world.setup.adopt(&output);
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(keepwatch.counter("command_failures"), 0);
    for line in content(&record).lines() {
        let (_, mask) = line.split_once('\t').unwrap();
        let mask = u128::from_str_radix(mask, 16).unwrap();
        // Beyond these are those of real time.
        assert_eq!(mask & 0x7fff_ffff, 0, "{line}");
    }
    assert!(Path::new(&record).exists() && fs::metadata(&record).unwrap().len() > 0);
}
