//! Promise 12: another station that claims the VIP while it is ours is seen.

use keepwatch::wire::arp::{self, Operation};
use lab::capture::Capture;
use lab::daemon::Running;
use libtest_mimic::Trial;

use crate::world::{World, add_interface};

pub fn trials() -> Vec<Trial> {
    lab::trials![foreign_claims_are_logged_and_counted, interface_made_anew, frames_for_others,]
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
