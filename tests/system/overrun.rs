//! Promise 8: after an overrun the state is right.

use std::fs;
use std::thread;

use lab::daemon::Setup;
use lab::old_kernel::without_option;
use lab::rtnl::Rtnl;
use nix::libc::{NETLINK_GET_STRICT_CHK, SOL_NETLINK};
use nix::sys::signal::Signal;

use crate::world::{VIP, World, add_interface, setup, word};

/// Adds addresses to the peer of `ha0`.
fn flood(addresses: u32) {
    let rtnl = Rtnl::new();
    for n in 0..addresses {
        rtnl.add_address("ha0-peer", &format!("10.{}.{}.1/32", n / 250, n % 250));
    }
}

#[apply(trial)]
fn flood_while_the_vip_flips() {
    let world = World::with(setup().with("--netlink-rcvbuf=4096"));
    // The flood interrupts dumps, and fills the table of announcements.
    world.setup.expect(&["dump of ", "announcement table full"]);
    let (keepwatch, agent) = (world.setup.start(), &world.agent);
    let netns = lab::namespace::Netns::current();
    let flooding = thread::spawn(move || {
        netns.enter();
        flood(5000);
    });
    let mut present = false;
    let mut flips = 0;
    while !flooding.is_finished() || flips % 2 == 0 {
        present = !present;
        world.set_vip(present);
        flips += 1;
    }
    flooding.join().unwrap();
    // The agent may have acknowledged an earlier `master`.
    keepwatch.wait_asleep();
    assert_eq!(world.setup.state(), "master");
    agent.assert_last_state("master");
    // The last change is lost: the queue is full of others before it.
    keepwatch.signal(Signal::SIGSTOP);
    flood(100);
    world.set_vip(false);
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_state("backup");
    agent.wait_acknowledged("backup");
    assert!(keepwatch.counter("overruns") > 0, "{}", keepwatch.status());
    keepwatch.wait_log("netlink events lost; resynchronising", 1);
    world.deliver(true);
    keepwatch.terminate();
    agent.assert_last_state("master");
}

/// Before Linux 4.20, a dump has the addresses of all interfaces.
#[apply(trial)]
fn kernel_without_filtered_dumps() {
    let world = World::new();
    add_interface(&world.rtnl, "ha1");
    world.rtnl.add_address("ha1", VIP);
    world.setup.expect(&["; expected "]);
    for present in [false, true] {
        let refuse = |command: &mut _| without_option(command, SOL_NETLINK, NETLINK_GET_STRICT_CHK);
        let _keepwatch = world.setup.daemonize_with(refuse);
        assert_eq!(world.setup.state(), word(present));
        world.deliver(!present);
    }
}

/// The daemon reads 4,000 events in batches, and handles its other inputs between them.
#[apply(trial)]
fn burst_starves_neither_signals_nor_the_agent() {
    let options = ["--netlink-rcvbuf=100000000", "--no-announce", "--no-netlink-filter"];
    let world = World::with(options.into_iter().fold(setup(), Setup::with));
    let (keepwatch, agent) = (world.setup.start(), &world.agent);
    // The answer about all addresses is not what is tested.
    keepwatch.wait_asleep();
    keepwatch.signal(Signal::SIGSTOP);
    world.set_vip(true);
    flood(4000);
    keepwatch.signal(Signal::SIGUSR1);
    keepwatch.signal(Signal::SIGCONT);
    agent.wait_acknowledged("master");
    keepwatch.wait_log("metrics_write_failures=", 1);
    let log = world.setup.log();
    let (_, status) = log.split_once("netlink_events=").expect("a status");
    let events: u32 = status.split_whitespace().next().unwrap().parse().unwrap();
    assert!(events < 1000, "{events} events were read before the signal was");
}

/// Another process in the namespace can send to the daemon's netlink port.
#[apply(trial)]
fn foreign_sender_is_ignored() {
    let world = World::new();
    let keepwatch = world.setup.start();
    world.rtnl.forge_address("ha0", [169, 254, 0, 5], 24, keepwatch.pid());
    keepwatch.wait_log("ignored a netlink message from port", 1);
    assert_eq!(keepwatch.counter("transitions"), 1);
    assert_eq!(keepwatch.counter("foreign"), 1);
}

/// Returns the port of the socket for questions. That of the socket for events is the process's number.
fn questions_port(pid: u32) -> u32 {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let port = sockets.lines().skip(1).find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_its = links.contains(&format!("socket:[{}]", words.last()?));
        words[2].parse().ok().filter(|port| is_its && *port != pid)
    });
    port.unwrap_or_else(|| panic!("{sockets}"))
}

/// Without room for the kernel's answer, its end never comes. The daemon asks again, and sleeps until then.
#[apply(trial)]
fn answer_without_room() {
    let world = World::with(setup().with("--debug"));
    world.setup.expect(&["dump of ", "watched interface ha0 not found"]);
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_asleep();
    let port = questions_port(keepwatch.pid());
    while world.rtnl.send_raw(&[0], port).is_ok() {}
    keepwatch.signal(Signal::SIGSTOP);
    // It asks about an interface that appears, and other events wait behind that.
    world.rtnl.down("ha0");
    world.rtnl.rename("ha0", "other");
    world.rtnl.rename("other", "ha0");
    world.rtnl.up("ha0");
    world.set_vip(true);
    keepwatch.signal(Signal::SIGCONT);
    world.agent.wait_acknowledged("master");
    keepwatch.wait_asleep();
    let failed = world.setup.log().matches("Answered(Failed").count();
    assert!((1..10).contains(&failed), "{failed} failures are handled");
}
