//! Promise 9: the watched interface is followed by its name.

use lab::capture::{Capture, Frame};
use nix::sys::signal::Signal;

use crate::world::{NO_INTERFACE, VIP, World, add_interface};

#[apply(trial)]
fn change_has_its_cause_in_the_log() {
    let world = World::new();
    let down = "ha0: the interface is down";
    world.setup.expect(&[NO_INTERFACE, "; expected ", down]);
    let keepwatch = world.setup.start();
    let expect = |text: &str| keepwatch.wait_log(&format!(": 169.254.0.5/24 is {text}\n"), 1);
    world.set_vip(true);
    expect("on ha0: address added");
    world.set_vip(false);
    expect("no longer on ha0: address removed");
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.rtnl.down("ha0");
    world.set_vip(false);
    expect("no longer on ha0: interface down");
    world.rtnl.up("ha0");
    world.set_vip(true);
    keepwatch.wait_state("master");
    // The kernel sets an interface down and removes its addresses before it reports the deletion.
    for _ in 0..5 {
        world.rtnl.delete("ha0");
        keepwatch.wait_log("no longer on ha0: interface gone\n", 1);
        add_interface(&world.rtnl, "ha0");
        world.set_vip(true);
        keepwatch.wait_state("master");
    }
    world.rtnl.rename("ha0", "away");
    keepwatch.wait_log("no longer on ha0: interface gone\n", 1);
}

/// With many alternative names, a message about an interface can be 64 kB long, more than the kernel's default buffer
/// for a dump. The watched interface is listed after such a one.
#[apply(trial)]
fn messages_of_the_greatest_length() {
    let world = World::new();
    add_interface(&world.rtnl, "long");
    world.rtnl.delete("ha0");
    for interface in ["ha0", "lan0"] {
        add_interface(&world.rtnl, interface);
    }
    world.rtnl.add_alternative_names("long", 300);
    world.set_vip(true);
    let (_, report) = world.setup.check();
    assert!(report.contains("on ha0: present, would start as master\n"), "{report}");
    let capture = Capture::new("lan0-peer");
    let keepwatch = world.setup.start();
    assert_eq!(world.setup.state(), "master");
    world.rtnl.add_address("lan0", "192.0.2.1/24");
    capture.wait("an announcement", |frames| frames.iter().any(Frame::is_arp));
    // Such messages are events, too.
    world.setup.expect(&["netlink events lost; resynchronising"]);
    world.rtnl.add_alternative_names("ha0", 450);
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("Notified agent router", 2);
    assert_eq!(keepwatch.counter("transitions"), 1);
    assert_eq!(keepwatch.counter("malformed"), 0);
}

/// Events never contain an alternative name.
#[apply(trial)]
fn alternative_name_is_refused() {
    let mut world = World::new();
    world.rtnl.add_alternative_name("ha0", "other");
    world.setup.interface = "other".into();
    let expected_name = "expected the interface's own name, ha0";
    let output = world.setup.run();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("keepwatch: --monitor_interface other: {expected_name}\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), *expected);
    assert!(!world.setup.state_file().exists() && !world.setup.pid_file().exists());
    let (code, report) = world.setup.check();
    assert!(code == Some(1) && report.ends_with(&expected), "{report}");
}

/// An interface whose alternative name is the watched name is not the watched one.
#[apply(trial)]
fn alternative_name_of_another_interface() {
    let world = World::new();
    world.setup.expect(&[NO_INTERFACE, "; expected "]);
    let keepwatch = world.setup.start();
    add_interface(&world.rtnl, "spare");
    world.rtnl.add_address("spare", VIP);
    world.rtnl.delete("ha0");
    world.rtnl.add_alternative_name("spare", "ha0");
    keepwatch.wait_log(NO_INTERFACE, 1);
    keepwatch.signal(Signal::SIGHUP);
    let line = "ha0 is an alternative name of spare; waiting for an interface of that name\n";
    keepwatch.wait_log(line, 1);
    world.rtnl.delete("spare");
    add_interface(&world.rtnl, "ha0");
    world.set_vip(true);
    keepwatch.wait_state("master");
    assert_eq!(keepwatch.counter("transitions"), 2);
}
