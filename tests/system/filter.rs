//! With `--no-announce`, the kernel filters out address events of other interfaces.

use lab::old_kernel::without_option;
use nix::libc::{SO_ATTACH_FILTER, SOL_SOCKET};

use crate::world::{NO_INTERFACE, World, begin_interface, setup};

/// 2,000 events of other interfaces do not reach the daemon, so they neither wake it nor fill its queue.
#[apply(trial)]
fn not_woken_by_other_interfaces() {
    let world = World::with(setup().with("--no-announce").with("--netlink-rcvbuf=4096"));
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    let [events, overruns] = ["events", "overruns"].map(|name| keepwatch.counter(name));
    for n in 0..1000 {
        let address = format!("10.0.{}.{}/32", n / 250, n % 250);
        world.rtnl.add_address("ha0-peer", &address);
        world.rtnl.delete_address("ha0-peer", &address);
    }
    assert_eq!(keepwatch.counter("events"), events);
    world.deliver(true);
    assert_eq!(keepwatch.counter("overruns"), overruns);
}

/// Each time the interface has another index, and has the VIP before the daemon can handle its events.
#[apply(trial)]
fn interface_that_comes_and_goes() {
    let mut setup = setup().with("--no-announce");
    setup.vip = "fd00::5/64".into();
    let world = World::with(setup);
    world.setup.expect(&[NO_INTERFACE, "; expected "]);
    let _keepwatch = world.setup.start();
    for round in 0..6 {
        world.rtnl.add_address("ha0", "fd00::5/64");
        world.agent.wait_acknowledged("master");
        if round % 2 == 0 {
            world.rtnl.delete("ha0");
        } else {
            world.rtnl.rename("ha0", &format!("away{round}"));
        }
        world.agent.wait_acknowledged("backup");
        if round % 2 == 1 {
            world.rtnl.delete("ha0-peer");
        }
        begin_interface(&world.rtnl, "ha0");
    }
}

#[apply(trial)]
fn switched_off() {
    let world = World::with(setup().with("--no-announce").with("--no-netlink-filter"));
    let keepwatch = world.setup.start();
    world.rtnl.add_address("ha0-peer", "10.0.0.1/32");
    keepwatch.wait_counter("events", 2);
}

#[apply(trial)]
fn refused_by_the_kernel() {
    let world = World::with(setup().with("--no-announce"));
    let refuse = |command: &mut _| without_option(command, SOL_SOCKET, SO_ATTACH_FILTER);
    let keepwatch = world.setup.daemonize_with(refuse);
    world.rtnl.add_address("ha0-peer", "10.0.0.1/32");
    world.deliver(true);
    world.rtnl.delete("ha0");
    keepwatch.wait_log(NO_INTERFACE, 1);
    world.agent.wait_acknowledged("backup");
    keepwatch.wait_counter("events", 6);
}
