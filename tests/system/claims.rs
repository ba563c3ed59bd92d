//! Promise 12: another station that claims the VIP while it is ours is seen.

use std::time::Instant;

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::Capture;
use lab::daemon::Running;
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;

use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        foreign_claims_are_logged_and_counted,
        ipv6_claims,
        only_while_active,
        interface_made_anew,
        two_routers_on_one_bridge,
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
    for mac in ["02-00-00-00-00-02", "02-00-00-00-00-03"] {
        let line = format!("split brain: {mac} claims the VIP on interface index {index}\n");
        keepwatch.wait_log(&line, 1);
    }
    assert_eq!(world.setup.log().matches("split brain").count(), 2, "each station once a minute");
    assert_eq!(keepwatch.counter("claims"), 3);
    assert!(keepwatch.status().contains("claimant=02-00-00-00-00-03"));
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
    keepwatch.wait_log("split brain: 02-00-00-00-00-02 claims the VIP", 1);
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
        crate::world::add_interface(&world.rtnl, "ha0");
        world.set_vip(true);
        wait_listening(&keepwatch);
        let mac = [2, 0, 0, 0, 0, n];
        let claim = arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap());
        Capture::new("ha0-peer").send(&claim);
        keepwatch.wait_log(&format!("split brain: 02-00-00-00-00-0{n}"), 1);
    }
}

/// Both hold the VIP and both announce it, as keepalived does: each sees the other and not itself.
fn two_routers_on_one_bridge() {
    let (home, rtnl) = (Netns::current(), Rtnl::new());
    rtnl.add_bridge("br0");
    rtnl.up("br0");
    let routers = [1, 2].map(|n| {
        let (router, port) = (World::new(), format!("port{n}"));
        router.rtnl.delete("ha0");
        router.rtnl.add_veth("ha0", &port);
        router.rtnl.set_mac("ha0", [2, 0, 0, 0, 0, n]);
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
    for (listener, speaker, mac) in [(0, 1, [2, 0, 0, 0, 0, 2]), (1, 0, [2, 0, 0, 0, 0, 1])] {
        let claim = arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap());
        // The bridge drops what comes before it has noticed that its ports have carrier.
        while keepwatches[listener].counter("claims") == 0 {
            assert!(Instant::now() < deadline, "no claim has arrived");
            routers[speaker].2.send(&claim);
        }
        let line = format!("split brain: 02-00-00-00-00-0{} claims", mac[5]);
        keepwatches[listener].wait_log(&line, 1);
    }
    for (router, own) in routers.iter().zip([1, 2]) {
        let log = router.0.setup.log();
        assert!(!log.contains(&format!("split brain: 02-00-00-00-00-0{own}")), "{log}");
    }
}
