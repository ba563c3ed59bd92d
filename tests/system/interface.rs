//! Promise 9: the watched interface is followed by its name.

use lab::namespace::Netns;
use libtest_mimic::Trial;

use crate::world::{VIP, World, add_interface};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        absent_then_created,
        deleted_and_recreated_with_the_vip,
        renamed_away_and_into_place,
        replaced_by_another,
        moved_to_another_namespace,
        port_of_a_bridge,
    ]
}

fn absent_then_created() {
    let world = World::new();
    world.rtnl.delete("ha0");
    let keepwatch = world.setup.start();
    assert_eq!(world.setup.state(), "backup");
    keepwatch.wait_log("watched interface is not there", 1);
    add_interface(&world.rtnl, "ha0");
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.agent.wait_acknowledged("master");
}

fn deleted_and_recreated_with_the_vip() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for _ in 0..10 {
        world.rtnl.delete("ha0");
        keepwatch.wait_state("backup");
        world.agent.wait_acknowledged("backup");
        add_interface(&world.rtnl, "ha0");
        world.set_vip(true);
        keepwatch.wait_state("master");
        world.agent.wait_acknowledged("master");
    }
}

fn renamed_away_and_into_place() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for _ in 0..5 {
        world.rtnl.down("ha0");
        world.rtnl.rename("ha0", "away");
        keepwatch.wait_state("backup");
        world.rtnl.rename("away", "ha0");
        keepwatch.wait_state("master");
        world.agent.wait_acknowledged("master");
    }
}

fn replaced_by_another() {
    let world = World::new();
    world.set_vip(true);
    add_interface(&world.rtnl, "spare");
    let keepwatch = world.setup.start();
    for interface in ["ha0", "spare"] {
        world.rtnl.down(interface);
    }
    world.rtnl.rename("ha0", "away");
    world.rtnl.rename("spare", "ha0");
    keepwatch.wait_state("backup");
    world.rtnl.add_address("ha0", VIP);
    keepwatch.wait_state("master");
    world.rtnl.delete_address("away", VIP);
    assert_eq!(keepwatch.counter("transitions"), 3, "the VIP of the old interface is none of ours");
}

fn moved_to_another_namespace() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    let elsewhere = Netns::new();
    world.rtnl.move_to("ha0", &elsewhere);
    keepwatch.wait_state("backup");
    world.agent.wait_acknowledged("backup");
}

/// A port that leaves a bridge makes the kernel send `RTM_DELLINK` in family `AF_BRIDGE`.
fn port_of_a_bridge() {
    let world = World::new();
    world.rtnl.add_bridge("br0");
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for _ in 0..3 {
        world.rtnl.set_bridge("ha0", Some("br0"));
        world.rtnl.set_bridge("ha0", None);
    }
    assert_eq!(keepwatch.counter("transitions"), 1);
    assert_eq!(world.setup.state(), "master");
}
