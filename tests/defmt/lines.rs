//! What frames say is what text says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use keepwatch::wire::arp;
use lab::agent::Behaviour;
use lab::capture::Capture;
use lab::frames::Decoder;
use nix::sys::signal::Signal;
use smoltcp::wire::ArpOperation;

use crate::programs::Log;
use crate::world::{World, add_interface};

/// A line without its time and pid, which differ between runs.
fn words(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or(line)
}

/// Whether a line begins as `2026-11-20 10:00:00.123 4711 `.
fn has_time_and_pid(line: &str) -> bool {
    let shape: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let pid = shape.strip_prefix("0000-00-00 00:00:00.000 ");
    pid.is_some_and(|rest| rest.trim_start_matches('0').starts_with(' '))
}

/// Something of every kind happens to a program; the world is afterwards as before.
pub fn everything(world: &World) -> String {
    let World { rtnl, agent, setup } = world;
    // Each step has come to its end before the next, so that the lines have one order.
    let keepwatch = setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    world.set_vip(true);
    keepwatch.wait_log("Notified agent router", 1);
    Capture::new("ha0-peer").send(&arp::announcement(
        ArpOperation::Request,
        [2, 0, 0, 0, 0, 2],
        "169.254.0.5".parse().unwrap(),
    ));
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
    keepwatch.terminate();
    setup.log()
}

/// A world in which everything can happen.
pub fn world(log: Log) -> World {
    let options = ["--debug", "--garp_master_repeat=2", "--garp_master_delay=0.1"];
    let setup = options.iter().fold(log.setup(), |setup, option| setup.with(*option));
    let world = World::with(setup);
    add_interface(&world.rtnl, "lan0");
    world
}

/// The lines that say what came of everything, in order; and what kinds of debug lines there were.
fn told(log: &str) -> (Vec<String>, BTreeSet<String>) {
    let port = format!("port: {},", log.split(' ').nth(2).unwrap());
    let (debug, told): (Vec<_>, Vec<_>) = log
        .lines()
        .inspect(|line| assert!(has_time_and_pid(line), "{line}"))
        .map(words)
        // How often it looked at its status, and what is in there, depends on how fast it was.
        .filter(|line| !line.contains(": status: ") && !line.contains("Control(Status)"))
        // The port of the daemon's own socket is its pid.
        .map(|line| line.replace(&port, "port: ours,"))
        // Each has a directory of its own.
        .map(|line| match line.split_once(" at /") {
            Some((said, path)) => format!("{said} at {}", path.rsplit('/').next().unwrap()),
            None => line,
        })
        // And so does how often the agent was tried.
        .map(|line| match line.split_once(" after ") {
            Some((said, _attempts)) if said.ends_with("agent notified") => said.into(),
            _ => line,
        })
        .partition(|line| line.starts_with("DEBUG "));
    (told, debug.into_iter().collect())
}

/// Needs the least of the world: even an emulated one in which netlink is not understood.
#[apply(trial)]
fn status() {
    let [text, frames] = [Log::Text, Log::Frames].map(|log| {
        let world = World::with(log.setup());
        let keepwatch = world.setup.spawn();
        // Signals are taken from then on.
        keepwatch.wait_log("\n", 1);
        let status = keepwatch.status();
        let names = status.split_whitespace().map(|word| word.split_once('=').unwrap().0);
        names.map(String::from).collect::<Vec<_>>()
    });
    assert!(text.len() > 15, "{text:?}");
    assert_eq!(text, frames);
}

#[apply(trial)]
fn same_as_text() {
    let mut world = world(Log::Text);
    let text = everything(&world);
    // The same links, with the same numbers and addresses, once more.
    let frames = Log::Frames.setup();
    let extra = world.setup.extra.clone();
    world.agent = lab::agent::Agent::start(&frames.state_path);
    world.setup = frames;
    world.setup.extra = extra;
    let frames = everything(&world);
    let ((text, debug), (frames, debug_frames)) = (told(&text), told(&frames));
    assert!(text.len() > 15, "{text:#?}");
    assert_eq!(text, frames);
    assert!(debug.len() > 20, "{debug:#?}");
    assert_eq!(debug, debug_frames);
}

/// A log file that several wrote to, and was moved away, can still be told apart.
#[apply(trial)]
fn begins_with_whose_it_is() {
    let world = World::with(Log::Frames.setup());
    let decoder = Decoder::of(&Log::Frames.symbols()).unwrap();
    let read = || {
        let lines = decoder.lines(&fs::read(world.setup.log_file()).unwrap());
        lines.into_iter().map(|line| line.expect("a whole frame").text).collect::<Vec<_>>()
    };
    let whose = |pid| {
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
    let (first, second) = (whose(pids[0]), whose(pids[1]));
    assert_eq!(lines[0], first);
    assert_eq!(lines.iter().filter(|line| **line == second).count(), 1, "{lines:#?}");
    let keepwatch = world.setup.start();
    fs::rename(world.setup.log_file(), world.setup.directory().join("old")).unwrap();
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP", 1);
    assert_eq!(read()[0], whose(keepwatch.pid()));
}

/// Text of any length comes from outside, with any bytes in it.
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
