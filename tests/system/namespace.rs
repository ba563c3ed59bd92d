//! Promise 10: a namespace that is deleted is let go.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::namespace::{Netns, unbind};
use lab::old_kernel::without_call;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::libc::SYS_inotify_init1;
use nix::net::if_::if_nametoindex;

use crate::world::{VIP, World, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        deleted_while_nothing_tells,
        deleted,
        deleted_without_an_agent,
        deleted_and_made_anew,
        others_come_and_go,
    ]
}

/// A world outside, and a namespace with the VIP in it, that lives as long as its name or somebody
/// inside.
fn world(name: &str) -> World {
    let world = World::with(setup().with(format!("--namespace={name}")));
    let inside = Netns::new();
    inside.bind(name);
    world.rtnl.add_veth("outside", "within");
    world.rtnl.move_to("within", &inside);
    inside.run(|| {
        let rtnl = Rtnl::new();
        add_interface(&rtnl, "ha0");
        rtnl.add_address("ha0", VIP);
    });
    world
}

fn delete_under(world: &World, name: &str, command: &mut Command) {
    let mut child = command.arg("--foreground").spawn().unwrap();
    world.agent.wait_acknowledged("master");
    unbind(name);
    world.agent.wait_acknowledged("backup");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_released();
    let log = world.setup.log();
    assert!(log.contains(": the network namespace has been deleted; leaving\n"), "{log}");
    assert_eq!(world.setup.state(), "backup");
    assert!(!world.setup.pid_file().exists());
}

/// With a namespace go its interfaces, and their other ends elsewhere.
fn assert_released() {
    let deadline = Instant::now() + lab::PATIENCE;
    while if_nametoindex("outside").is_ok() {
        assert!(Instant::now() < deadline, "the namespace is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

fn deleted() {
    let world = world("deleted");
    delete_under(&world, "deleted", &mut world.setup.command());
}

/// As on a machine where all inotify instances are in use.
fn deleted_while_nothing_tells() {
    let world = world("deleted_while_nothing_tells");
    let mut command = world.setup.command();
    without_call(&mut command, SYS_inotify_init1);
    delete_under(&world, "deleted_while_nothing_tells", &mut command);
}

/// Nobody can be told; the daemon does not stay for ever because of that.
fn deleted_without_an_agent() {
    let mut world = world("deleted_without_an_agent");
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("master");
    world.agent.stop(true);
    unbind("deleted_without_an_agent");
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
    assert_eq!(world.setup.state(), "backup");
}

/// It is another namespace, though of the same name.
fn deleted_and_made_anew() {
    let world = world("deleted_and_made_anew");
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("master");
    unbind("deleted_and_made_anew");
    Netns::new().bind("deleted_and_made_anew");
    world.agent.wait_acknowledged("backup");
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}

fn others_come_and_go() {
    let world = world("others_come_and_go");
    let keepwatch = world.setup.start();
    for _ in 0..10 {
        Netns::new().bind("another");
        unbind("another");
    }
    assert_eq!(keepwatch.counter("transitions"), 1);
}
