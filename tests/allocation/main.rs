//! Promise 18: once it runs, the daemon neither allocates nor frees memory.
//!
//! This program is both the test and the tested daemon: keepwatch with an allocator that ends the process.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints measurements"
)]

#[macro_use]
extern crate lab;

mod malloc;
mod program;
#[path = "../system/world.rs"]
#[expect(dead_code, reason = "these tests need only a part of it")]
mod world;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::ExitCode;

use keepwatch::wire::arp::{self, Operation};
use lab::agent::{Agent, Behaviour, FullBacklog};
use lab::capture::Capture;
use lab::daemon::{Running, Setup, send};
use lab::files::{Watch, content, receive, write_program};
use lab::namespace::{Netns, unbind};
use lab::rtnl::Rtnl;
use nix::sys::signal::Signal;
use world::{VIP, World, add_interface, set_sysctl, word};

/// The environment variable that makes this program the daemon.
const PROGRAM: &str = "KEEPWATCH_PROGRAM";
/// The address of [`VIP`].
const CLAIMED: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 5);

fn main() -> ExitCode {
    if std::env::var_os(PROGRAM).is_some() {
        return program::main();
    }
    lab::trial::run()
}

fn setup() -> Setup {
    let mut setup = Setup::new(std::env::current_exe().unwrap());
    setup.environment.push((PROGRAM.into(), "1".into()));
    setup.with("--garp_master_delay=0.1")
}

/// Asserts exit code 0, which means that the daemon has not allocated.
fn assert_ends(keepwatch: Running<'_>) {
    let smaps = content(format!("/proc/{}/smaps", keepwatch.pid()).as_ref());
    let stack = smaps.split("[stack]").nth(1).unwrap();
    let peak = stack.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    println!("stack, arguments and environment: {}", peak.trim());
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
}

#[apply(trial)]
fn allocation_is_noticed() {
    let world = World::with(setup());
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    keepwatch.signal(Signal::SIGWINCH);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(malloc::ALLOCATED));
}

/// Adds a conntrackd that prints and fails.
fn with_conntrackd(mut setup: Setup) -> Setup {
    let program = setup.directory().join("conntrackd");
    write_program(&program, "#!/bin/sh\necho $*\n[ $3 != -f ]\n");
    fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
    setup.environment.push(("PATH".into(), setup.directory().into()));
    setup.with("--enable_conntrackd")
}

/// Adds a hook that prints and sometimes fails.
fn with_hook(setup: Setup) -> Setup {
    let program = setup.directory().join("hook");
    write_program(&program, "#!/bin/sh\necho $*\n[ $KEEPWATCH_PREVIOUS ]\n");
    setup.with(format!("--hook={}", program.display()))
}

/// Adds a service manager with a watchdog.
fn with_manager(setup: &mut Setup) -> UnixDatagram {
    let path = setup.directory().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    setup.environment.push(("NOTIFY_SOCKET".into(), path.into()));
    setup.environment.push(("WATCHDOG_USEC".into(), "200000".into()));
    socket
}

fn with_metrics(setup: Setup) -> Setup {
    let directory = setup.directory().join("metrics");
    fs::create_dir(&directory).unwrap();
    setup.with(format!("--metrics-file={}", directory.join("m.prom").display()))
}

#[apply(trial)]
fn every_event() {
    let mut world = World::with(with_metrics(with_hook(with_conntrackd(setup()))).with("--debug"));
    let manager = with_manager(&mut world.setup);
    let (rtnl, setup) = (&world.rtnl, &world.setup);
    add_interface(rtnl, "lan0");
    let (ours, lan) = (Capture::new("ha0-peer"), Capture::new("lan0-peer"));
    setup.expect(&["still running; killed", "hook failed for ", "conntrackd -f: exit code 1"]);
    let keepwatch = setup.start();
    keepwatch.wait_counter("hook_failures", 2);
    rtnl.add_address("ha0", "169.254.0.5/32");
    keepwatch.wait_log("169.254.0.5/32 is on ha0", 1);
    for present in [true, false, true] {
        world.set_vip(present);
        world.agent.wait_acknowledged(word(present));
    }
    keepwatch.wait_counter("commands", 4);
    keepwatch.wait_log("hook succeeded for MASTER", 1);
    let claim = arp::announcement(Operation::Reply, [2, 9, 9, 9, 9, 9], CLAIMED);
    ours.send(&claim);
    keepwatch.wait_counter("claims", 1);
    // More claims than it reads in a second.
    for station in 0..40 {
        ours.send(&arp::announcement(Operation::Request, [2, 9, 9, 9, 9, station], CLAIMED));
    }
    // By then a second has passed since the first.
    keepwatch.wait_counter("claims", 41);
    ours.send(&claim);
    keepwatch.wait_log("split brain: ", 1);
    rtnl.add_address("lan0", "10.0.0.1/24");
    rtnl.add_address("lan0", "fd00::1/64");
    keepwatch.wait_counter("announcements", 9);
    set_sysctl("ipv6/conf/lan0/forwarding", 1);
    rtnl.set_mac("lan0", [2, 0, 0, 0, 0, 7]);
    rtnl.down("lan0-peer");
    rtnl.add_address("lan0", "10.0.0.2/24");
    rtnl.up("lan0-peer");
    lan.wait("the address added meanwhile", |frames| {
        frames.iter().any(|frame| frame.is_arp() && frame.bytes[28..32] == [10, 0, 0, 2])
    });
    rtnl.delete("lan0");
    rtnl.rename("ha0", "away0");
    world.agent.wait_acknowledged("backup");
    rtnl.rename("away0", "ha0");
    world.agent.wait_acknowledged("master");
    break_state_file(&world, &keepwatch);
    break_metrics_file(&world, &keepwatch);
    fs::rename(setup.log_file(), setup.conf_dir.join("log.1")).unwrap();
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("Notified agent router", 1);
    rtnl.send_raw(&[0; 16], keepwatch.pid()).unwrap();
    keepwatch.wait_log("ignored a netlink message from port", 1);
    keepwatch.wait_counter("foreign", 1);
    let mut received = String::new();
    while !["READY=1", "STATUS=", "WATCHDOG=1"].iter().all(|what| received.contains(what)) {
        assert!(received.len() < 4096, "{received}");
        received += &receive(&manager);
    }
    assert_ends(keepwatch);
}

#[apply(trial)]
fn killed_helper() {
    let world = World::with(with_hook(setup()));
    let keepwatch = world.setup.start();
    // The first run fails, and may end before the helper.
    world.setup.expect(&["hook failed for BACKUP"]);
    let helper = keepwatch.children()[0];
    send(helper, Signal::SIGKILL);
    keepwatch.wait_log("hook helper gone; exiting", 1);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}

fn break_state_file(world: &World, keepwatch: &Running<'_>) {
    let aside = world.setup.directory().join("aside");
    fs::rename(&world.setup.conf_dir, &aside).unwrap();
    world.set_vip(false);
    world.agent.wait_acknowledged("backup");
    fs::rename(&aside, &world.setup.conf_dir).unwrap();
    keepwatch.wait_state("backup");
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
}

fn break_metrics_file(world: &World, keepwatch: &Running<'_>) {
    let (metrics, aside) =
        (world.setup.directory().join("metrics"), world.setup.conf_dir.join("m"));
    fs::rename(&metrics, &aside).unwrap();
    keepwatch.signal(Signal::SIGUSR1);
    keepwatch.wait_log("metrics file not written", 1);
    assert!(content(&aside.join("m.prom")).contains("keepwatch_active"));
    fs::rename(&aside, &metrics).unwrap();
    let watch = Watch::new(&metrics);
    keepwatch.signal(Signal::SIGUSR1);
    let failed = "keepwatch_metrics_write_failures_total";
    watch.until(failed, || {
        let text = content(&metrics.join("m.prom"));
        let line = text.lines().rfind(|line| line.starts_with(failed))?;
        (!line.ends_with(" 0")).then_some(())
    });
}

#[apply(trial)]
fn every_failure_of_the_agent() {
    let mut world = World::with(setup());
    world.agent.stop(true);
    let (state_path, keepwatch) = (&world.setup.state_path, world.setup.start());
    let fails = |how: &str| keepwatch.wait_log(&format!("agent not notified: {how}"), 1);
    fails("no socket (ENOENT); retrying");
    let full = FullBacklog::new(state_path);
    fails("backlog full");
    drop(full);
    fs::remove_file(state_path.join("keepalived-state-change")).unwrap();
    drop(UnixListener::bind(state_path.join("keepalived-state-change")).unwrap());
    fails("connection refused");
    // From here on, the older state must not be delivered any more.
    world.set_vip(true);
    keepwatch.wait_state("master");
    let mut agent = Agent::start(state_path);
    for (behaviour, how) in [
        (Behaviour::Reply(vec![b"HTTP/1.1 500 No\r\n\r\n"]), "reply has status 500"),
        // This resets the connection. A mere early close counts as an equal failure, so it has no line for a minute.
        (Behaviour::CloseUnread, "connection closed before a complete reply"),
        (Behaviour::Babble, "reply is not HTTP"),
        (Behaviour::Hang, "reply timed out"),
    ] {
        agent.behave(behaviour);
        fails(how);
    }
    let before = agent.arrivals().len();
    agent.behave(Behaviour::CloseEarly);
    agent.wait("another attempt", |arrivals| arrivals.len() >= before + 2);
    assert!(agent.arrivals().iter().all(|arrival| arrival.state != "backup"));
    for (behaviour, present) in [(Behaviour::eventlet(), false), (Behaviour::newest(), true)] {
        agent.behave(behaviour);
        world.set_vip(present);
        agent.wait_acknowledged(word(present));
    }
    keepwatch.wait_log("agent notified after ", 1);
    keepwatch.wait_delivered("master");
    // Another agent, which may not know the state that this one has answered for.
    let before = agent.arrivals().len();
    agent.stop(true);
    agent.listen();
    keepwatch.wait_log("agent's socket was replaced or changed since its reply", 1);
    agent.wait("the state once more", |arrivals| arrivals.len() > before);
    assert_ends(keepwatch);
}

#[apply(trial)]
fn events_lost() {
    let world = World::with(setup().with("--netlink-rcvbuf=4096"));
    // 1,000 addresses take the kernel several messages, and the VIP may come between two.
    world.setup.expect(&["dump of addresses failed: interrupted by a change"]);
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    keepwatch.signal(Signal::SIGSTOP);
    for n in 0..1000 {
        world.rtnl.add_address("ha0-peer", &format!("10.{}.{}.1/32", n / 250, n % 250));
    }
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_log("netlink events lost; resynchronising", 1);
    keepwatch.wait_counter("overruns", 1);
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    assert_ends(keepwatch);
}

#[apply(trial)]
fn namespace_deleted() {
    let world = World::with(setup().with("--namespace=deleted"));
    let inside = Netns::new();
    inside.bind("deleted");
    inside.run(|| {
        let rtnl = Rtnl::new();
        add_interface(&rtnl, "ha0");
        rtnl.add_address("ha0", VIP);
    });
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("master");
    unbind("deleted");
    keepwatch.wait_log("network namespace deleted; exiting", 1);
    world.agent.wait_acknowledged("backup");
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}
