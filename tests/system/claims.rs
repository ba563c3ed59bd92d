//! Promise 12: another station that claims the VIP while it is ours is seen.

use std::time::Instant;

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::Capture;
use lab::daemon::Running;
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::world::{World, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        foreign_claims_are_logged_and_counted,
        ipv6_claims,
        only_while_active,
        interface_made_anew,
        interface_back_with_its_index,
        interface_back_with_its_index_unseen,
        frames_for_others,
        vip_gone_within_a_second,
        two_routers_on_one_bridge,
        two_routers_with_one_virtual_mac,
    ]
}

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn start_listening(world: &World) -> Running<'_> {
    let keepwatch = world.setup.start();
    wait_listening(&keepwatch);
    keepwatch
}

/// It listens in the same turn in which it writes that it is active, so before it takes a signal.
fn wait_listening(keepwatch: &Running<'_>) {
    keepwatch.wait_state("master");
    keepwatch.status();
}

fn foreign_claims_are_logged_and_counted() {
    let world = World::new();
    world.rtnl.set_mac("ha0", OURS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    let vip = "169.254.0.5".parse().unwrap();
    for operation in [Operation::Request, Operation::Reply] {
        wire.send(&arp::announcement(operation, THEIRS, vip));
    }
    // None of these: our own, another address, a probe.
    wire.send(&arp::announcement(Operation::Request, OURS, vip));
    wire.send(&arp::announcement(Operation::Request, THEIRS, "169.254.0.6".parse().unwrap()));
    wire.send(&arp::announcement(Operation::Request, THEIRS, "0.0.0.0".parse().unwrap()));
    let other = [2, 0, 0, 0, 0, 3];
    wire.send(&arp::announcement(Operation::Request, other, vip));
    let index = world.rtnl.ifindex("ha0");
    for line in [
        "02:00:00:00:00:02 claims 169.254.0.5 on ha0 (index {}) (2 times since last logged)\n",
        "02:00:00:00:00:03 claims 169.254.0.5 on ha0 (index {})\n",
    ] {
        keepwatch.wait_log(&format!("split brain: {}", line.replace("{}", &index.to_string())), 1);
    }
    assert_eq!(world.setup.log().matches("split brain").count(), 2, "each station once a minute");
    assert_eq!(keepwatch.counter("claims"), 3);
    assert!(keepwatch.status().contains("claimant=02:00:00:00:00:03"));
}

fn ipv6_claims() {
    let world = World::with(setup().with("--monitor_cidr=fd00::5/64"));
    world.rtnl.set_mac("ha0", OURS);
    world.rtnl.add_address("ha0", "fd00::5/64");
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    wire.send(&ndisc::advertisement(OURS, "fd00::5".parse().unwrap(), true));
    wire.send(&ndisc::advertisement(THEIRS, "fd00::6".parse().unwrap(), true));
    wire.send(&ndisc::advertisement(THEIRS, "fd00::5".parse().unwrap(), true));
    keepwatch.wait_log("split brain: 02:00:00:00:00:02 claims fd00::5 on ha0", 1);
    assert_eq!(keepwatch.counter("claims"), 1);
}

fn only_while_active() {
    let world = World::new();
    world.rtnl.set_mac("ha0", OURS);
    let keepwatch = world.setup.start();
    let wire = Capture::new("ha0-peer");
    let claim = arp::announcement(Operation::Request, THEIRS, "169.254.0.5".parse().unwrap());
    for _ in 0..2 {
        wire.send(&claim);
        world.set_vip(true);
        keepwatch.wait_state("master");
        world.set_vip(false);
        keepwatch.wait_state("backup");
        // It stops to listen in the same turn in which it writes, so before it takes a signal.
        keepwatch.status();
    }
    assert_eq!(keepwatch.counter("claims"), 0);
    world.set_vip(true);
    wait_listening(&keepwatch);
    assert_eq!(keepwatch.counter("claims"), 0);
    wire.send(&claim);
    keepwatch.wait_log("split brain", 1);
}

fn interface_made_anew() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for n in 3..6 {
        world.rtnl.delete("ha0");
        keepwatch.wait_state("backup");
        add_interface(&world.rtnl, "ha0");
        world.set_vip(true);
        wait_listening(&keepwatch);
        let mac = [2, 0, 0, 0, 0, n];
        let claim = arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap());
        Capture::new("ha0-peer").send(&claim);
        keepwatch.wait_log(&format!("split brain: 02:00:00:00:00:0{n}"), 1);
    }
}

/// The kernel unbinds a socket from an interface that goes, and does not bind it to one that comes with
/// the same index.
fn interface_back_with_its_index() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let index = world.rtnl.ifindex("ha0");
    for (n, up) in [(1, true), (2, false)] {
        leave_and_return(&world, up);
        keepwatch.wait_log("watched interface ha0 not found", n);
        world.set_vip(true);
        wait_listening(&keepwatch);
        wait_heard(&keepwatch);
    }
    world.rtnl.delete("ha0");
    world.rtnl.add_veth_at("ha0", index, "ha0-peer");
    for link in ["ha0", "ha0-peer"] {
        world.rtnl.up(link);
    }
    for link in ["ha0", "ha0-peer"] {
        world.rtnl.wait_running(link);
    }
    keepwatch.wait_log("watched interface ha0 not found", 3);
    world.set_vip(true);
    wait_listening(&keepwatch);
    wait_heard(&keepwatch);
}

/// The same while events are lost, so that nothing tells of it.
fn interface_back_with_its_index_unseen() {
    let world = World::with(setup().with("--netlink-rcvbuf=4096"));
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    for up in [true, false] {
        let (overruns, transitions) =
            (keepwatch.counter("overruns"), keepwatch.counter("transitions"));
        keepwatch.signal(Signal::SIGSTOP);
        for n in 0..100 {
            let address = format!("10.0.{n}.1/32");
            world.rtnl.add_address("ha0-peer", &address);
            world.rtnl.delete_address("ha0-peer", &address);
        }
        leave_and_return(&world, up);
        world.set_vip(true);
        keepwatch.signal(Signal::SIGCONT);
        keepwatch.wait_counter("overruns", overruns + 1);
        assert_eq!(keepwatch.counter("transitions"), transitions, "nothing has told of it");
        wait_heard(&keepwatch);
    }
}

/// Moves the interface to another namespace and back, up or down.
fn leave_and_return(world: &World, up: bool) {
    let (home, elsewhere) = (Netns::current(), Netns::new());
    let index = world.rtnl.ifindex("ha0");
    if !up {
        world.rtnl.down("ha0");
    }
    world.rtnl.move_to("ha0", &elsewhere);
    elsewhere.run(|| Rtnl::new().move_to("ha0", &home));
    assert_eq!(world.rtnl.ifindex("ha0"), index);
    world.rtnl.up("ha0");
    world.rtnl.wait_running("ha0");
}

/// Sends claims from the other end until one is counted.
fn wait_heard(keepwatch: &Running<'_>) {
    let wire = Capture::new("ha0-peer");
    let claim = arp::announcement(Operation::Request, THEIRS, "169.254.0.5".parse().unwrap());
    let (before, deadline) = (keepwatch.counter("claims"), Instant::now() + lab::PATIENCE);
    while keepwatch.counter("claims") == before {
        assert!(Instant::now() < deadline, "no claim is heard");
        wire.send(&claim);
    }
}

/// A claim in another VLAN, one that is sent to another host, and what only looks like one do not even
/// wake it.
fn frames_for_others() {
    let world = World::new();
    world.rtnl.set_mac("ha0", OURS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let (wire, arrived) = (Capture::new("ha0-peer"), Capture::new("ha0"));
    let claim = arp::announcement(Operation::Reply, THEIRS, "169.254.0.5".parse().unwrap());
    let (addresses, rest) = claim.split_at(12);
    let tagged = |vlan: u8| [addresses, &[0x81, 0, 0, vlan], rest].concat();
    let to = |mac: [u8; 6]| [&mac, &claim[6..]].concat();
    // Other hardware, another protocol, and addresses of other lengths.
    let malformed = [15, 16, 18, 19].map(|at| {
        let mut frame = claim.to_vec();
        frame[at] ^= 1;
        frame
    });
    keepwatch.wait_asleep();
    let before = keepwatch.wakes();
    for _ in 0..20 {
        for frame in [tagged(5), to([2, 0, 0, 0, 0, 9])].iter().chain(&malformed) {
            wire.send(frame);
        }
    }
    arrived.wait("all frames", |frames| frames.len() >= 120);
    assert_eq!(keepwatch.wakes(), before);
    // One without a VLAN, and one that is sent to this host, count.
    wire.send(&tagged(0));
    wire.send(&to(OURS));
    keepwatch.wait_counter("claims", 2);
    assert_eq!(keepwatch.counter("claims"), 2);
}

/// The master that gives way hears the next one before its own VIP goes.
fn vip_gone_within_a_second() {
    let world = World::new();
    world.rtnl.set_mac("ha0", OURS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    let claim = |mac| arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap());
    for n in 1..4 {
        wire.send(&claim(THEIRS));
        keepwatch.wait_counter("claims", n);
        world.set_vip(false);
        keepwatch.wait_state("backup");
        world.set_vip(true);
        wait_listening(&keepwatch);
    }
    wire.send(&claim([2, 0, 0, 0, 0, 3]));
    keepwatch.wait_log("split brain: 02:00:00:00:00:03", 1);
    assert_eq!(world.setup.log().matches("split brain").count(), 1);
}

/// Both hold the VIP and both announce it, as keepalived does: each sees the other and not itself.
fn two_routers_on_one_bridge() {
    hear_each_other(|n| [2, 0, 0, 0, 0, n]);
}

/// With keepalived's `use_vmac` both have the same MAC: what one has not sent comes from the other.
fn two_routers_with_one_virtual_mac() {
    hear_each_other(|_| [0, 0, 0x5e, 0, 1, 5]);
}

fn hear_each_other(mac: fn(u8) -> [u8; 6]) {
    let (home, rtnl) = (Netns::current(), Rtnl::new());
    rtnl.add_bridge("br0");
    rtnl.up("br0");
    let routers = [1, 2].map(|n| {
        let (router, port) = (World::new(), format!("port{n}"));
        router.rtnl.delete("ha0");
        router.rtnl.add_veth("ha0", &port);
        router.rtnl.set_mac("ha0", mac(n));
        router.rtnl.up("ha0");
        router.rtnl.move_to(&port, &home);
        home.run(|| {
            rtnl.set_bridge(&port, Some("br0"));
            rtnl.up(&port);
        });
        router.set_vip(true);
        (router, Netns::current(), Capture::new("ha0"))
    });
    let keepwatches =
        routers.each_ref().map(|(router, netns, _)| netns.run(|| start_listening(router)));
    let deadline = Instant::now() + lab::PATIENCE;
    for (listener, speaker) in [(0, 1), (1, 0)] {
        let mac = mac([1, 2][speaker]);
        let claim = arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap());
        let heard = keepwatches[speaker].counter("claims");
        // The bridge drops what comes before it has noticed that its ports have carrier.
        while keepwatches[listener].counter("claims") == 0 {
            assert!(Instant::now() < deadline, "no claim has arrived");
            routers[speaker].2.send(&claim);
        }
        let line = format!("split brain: {} claims 169.254.0.5 on ha0", colons(mac));
        keepwatches[listener].wait_log(&line, 1);
        assert_eq!(keepwatches[speaker].counter("claims"), heard, "of itself it hears nothing");
    }
}

fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
