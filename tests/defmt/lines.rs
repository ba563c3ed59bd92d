//! Frames and text have the same lines.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use keepwatch::wire::arp;
use lab::agent::Behaviour;
use lab::capture::Capture;
use lab::daemon::send;
use lab::frames::Decoder;
use nix::sys::signal::Signal;
use smoltcp::wire::ArpOperation;

use crate::programs::Log;
use crate::world::{World, add_interface};

/// Returns a line without time and pid, which differ between runs.
fn words(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or(line)
}

/// Whether a line begins like `2026-11-20 10:00:00.123 4711 `.
fn has_time_and_pid(line: &str) -> bool {
    let shape: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let pid = shape.strip_prefix("0000-00-00 00:00:00.000 ");
    pid.is_some_and(|rest| rest.trim_start_matches('0').starts_with(' '))
}

/// Makes a program log lines of every kind. Returns the log, and leaves the world unchanged.
pub fn everything(world: &World) -> String {
    let World { rtnl, agent, setup } = world;
    // Each step ends before the next one begins, so the lines have a fixed order.
    let keepwatch = setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    world.set_vip(true);
    keepwatch.wait_log("Notified agent router", 1);
    let (wire, theirs) = (Capture::new("ha0-peer"), [2, 0, 0, 0, 0, 2]);
    let claim = |kind| arp::announcement(kind, theirs, "169.254.0.5".parse().unwrap());
    // Another station is asked before its claim is named.
    wire.send(&claim(ArpOperation::Request));
    keepwatch.wait_log("Probed(Ok(()))", 1);
    wire.send(&claim(ArpOperation::Reply));
    keepwatch.wait_log("split brain", 1);
    for (address, announced) in [("192.0.2.10/24", 4), ("2001:db8::10/64", 6)] {
        rtnl.add_address("lan0", address);
        keepwatch.wait_counter("announcements", announced);
        rtnl.delete_address("lan0", address);
    }
    let message = [&16_u32.to_ne_bytes()[..], &[0; 12]].concat();
    rtnl.send_raw(&message, keepwatch.pid()).unwrap();
    keepwatch.wait_log("ignored a netlink message", 1);
    agent.behave(Behaviour::Reply(vec![b"HTTP/1.1 503 No\r\n\r\n"]));
    world.set_vip(false);
    keepwatch.wait_log("agent not notified", 1);
    agent.behave(Behaviour::newest());
    keepwatch.wait_log("agent notified after", 1);
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("Notified agent router", 2);
    // The interface, the addresses and the links are listed at the start and by SIGHUP; the links after the report.
    keepwatch.wait_log("Answered(Complete)", 6);
    keepwatch.terminate();
    setup.log()
}

/// Returns a world for [`everything`].
pub fn world(log: Log) -> World {
    let options = ["--debug", "--garp_master_repeat=2", "--garp_master_delay=0.1"];
    let setup = options.iter().fold(log.setup(), |setup, option| setup.with(*option));
    let world = World::with(setup);
    add_interface(&world.rtnl, "lan0");
    world
}

/// Returns a line without the times in the kernel's events and frames, and of a split brain.
fn without_times(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    while let Some(at) = ["created: ", "micros: ", ", silent for "]
        .iter()
        .find_map(|key| Some(rest.find(key)? + key.len()))
    {
        text.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    text + rest
}

/// Returns the lines of a log in order, without what differs between runs, and the set of debug lines.
fn outcome(log: &str) -> (Vec<String>, BTreeSet<String>) {
    let (debug, lines): (Vec<_>, Vec<_>) = log
        .lines()
        .inspect(|line| assert!(has_time_and_pid(line), "{line}"))
        .map(words)
        // Number and content of the status blocks depend on the speed.
        .filter(|line| !line.contains(": status: ") && !line.contains("Control(Status)"))
        // Another test may set the machine's clock.
        .filter(|line| !line.ends_with(": ClockSet"))
        .map(without_times)
        // Each run has another directory.
        .map(|line| match line.split_once(" at /") {
            Some((text, path)) => format!("{text} at {}", path.rsplit('/').next().unwrap()),
            None => line,
        })
        // The number of attempts depends on the speed.
        .map(|line| match line.split_once(" after ") {
            Some((text, _attempts)) if text.ends_with("agent notified") => text.into(),
            _ => line,
        })
        .partition(|line| line.starts_with("DEBUG "));
    (lines, debug.into_iter().collect())
}

/// Works even in an emulator without netlink.
#[apply(trial)]
fn status() {
    let [text, frames] = [Log::Text, Log::Frames].map(|log| {
        let world = World::with(log.setup());
        let keepwatch = world.setup.spawn();
        // After its first line, it handles signals.
        keepwatch.wait_log("\n", 1);
        let status = keepwatch.status();
        // A trouble's text has no names.
        let names = status.split_whitespace().filter_map(|word| Some(word.split_once('=')?.0));
        names.map(String::from).collect::<Vec<_>>()
    });
    assert!(text.len() > 15, "{text:?}");
    assert_eq!(text, frames);
}

#[apply(trial)]
fn same_as_text() {
    let mut world = world(Log::Text);
    let text = everything(&world);
    // The second run has the same links and addresses.
    let frames = Log::Frames.setup();
    let extra = world.setup.extra.clone();
    world.agent = lab::agent::Agent::start(&frames.state_path);
    world.setup = frames;
    world.setup.extra = extra;
    let frames = everything(&world);
    let ((text, debug), (frames, debug_frames)) = (outcome(&text), outcome(&frames));
    assert!(text.len() > 15, "{text:#?}");
    assert_eq!(text, frames);
    assert!(debug.len() > 20, "{debug:#?}");
    assert_eq!(debug, debug_frames);
}

/// No line of [`everything`] is an error.
#[apply(trial)]
fn error() {
    for log in [Log::Text, Log::Frames] {
        let world = World::with(log.setup().with("--hook=/bin/true"));
        let keepwatch = world.setup.start();
        send(keepwatch.children()[0], Signal::SIGKILL);
        let line =
            format!(" ERROR keepwatch [-] {}: hook helper gone; exiting", world.setup.router);
        keepwatch.wait_log(&line, 1);
    }
}

/// The lines of several daemons in one file can be attributed to each, also after a rotation.
#[apply(trial)]
fn begins_with_pid_and_router() {
    let world = World::with(Log::Frames.setup());
    let decoder = Decoder::of(&Log::Frames.symbols()).unwrap();
    let read = || {
        let lines = decoder.lines(&fs::read(world.setup.log_file()).unwrap());
        lines.into_iter().map(|line| line.expect("a whole frame").text).collect::<Vec<_>>()
    };
    let introduction = |pid| {
        let version = env!("CARGO_PKG_VERSION");
        format!("keepwatch {version}, pid {pid}, router {}", world.setup.router)
    };
    let mut pids = Vec::new();
    for _ in 0..2 {
        let keepwatch = world.setup.start();
        pids.push(keepwatch.pid());
        keepwatch.terminate();
    }
    let lines = read();
    let (first, second) = (introduction(pids[0]), introduction(pids[1]));
    assert_eq!(lines[0], first);
    assert_eq!(lines.iter().filter(|line| **line == second).count(), 1, "{lines:#?}");
    let keepwatch = world.setup.start();
    fs::rename(world.setup.log_file(), world.setup.directory().join("old")).unwrap();
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP", 1);
    assert_eq!(read()[0], introduction(keepwatch.pid()));
}

/// Text from outside has any length and any bytes.
#[apply(trial)]
fn long_text_is_cut() {
    let mut setup = Log::Frames.setup();
    setup.conf_dir = (0..20).fold(setup.conf_dir, |path, _| path.join("a\nb".repeat(20)));
    fs::create_dir_all(&setup.conf_dir).unwrap();
    fs::set_permissions(&setup.conf_dir, fs::Permissions::from_mode(0o777)).unwrap();
    let world = World::with(setup);
    let keepwatch = world.setup.start();
    keepwatch.wait_log("world-writable directory: /", 1);
    let log = world.setup.log();
    let line = log.lines().find(|line| line.contains("world-writable")).unwrap();
    assert!(line.contains("a\\nba\\nb") && (300..500).contains(&line.len()), "{line}");
    world.set_vip(true);
    keepwatch.wait_log("Notified agent router", 2);
}
