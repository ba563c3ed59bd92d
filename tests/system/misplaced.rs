//! The VIP's address on another interface, or with another prefix length: log, status and metrics show it.

use lab::rtnl::Address;
use libtest_mimic::Trial;

use crate::metrics::world_with;
use crate::scripted::tracked;
use crate::world::{World, setup};

#[apply(trial)]
fn rows() -> Vec<Trial> {
    let rows = [
        ("other_prefix", ("169.254.0.5/24", "ha0", "169.254.0.5/32")),
        ("other_interface", ("169.254.0.5/24", "ha0-peer", "169.254.0.5/24")),
        ("ipv6", ("fd00::5/64", "ha0-peer", "fd00::5/128")),
    ];
    let rows = lab::trial::table(module_path!(), rows, |row| {
        assert_shown("--no-announce", row);
        assert_shown("--nodebug", row);
    });
    rows.collect()
}

fn assert_shown(extra: &str, (vip, interface, there): (&str, &str, &str)) {
    let (world, file) = world_with(setup().with(format!("--monitor_cidr={vip}")).with(extra));
    let peer = if vip.contains(':') { "fd00::6" } else { "10.0.0.6" };
    let address = Address::new(there);
    let with_peer = Address { peer: peer.parse().ok(), ..address };
    let line = format!("{there} is on {interface}; expected {vip} on ha0\n");
    let shown = format!("; {there} is on {interface}\n");
    world.rtnl.add(interface, address);
    let keepwatch = world.setup.start();
    let expect = |is_shown: bool| {
        file.wait("misplaced_address", is_shown.into());
        assert_eq!(keepwatch.status().contains(&shown), is_shown);
    };
    for address in [address, with_peer] {
        expect(true);
        world.rtnl.add_address("ha0", vip);
        expect(false);
        world.rtnl.delete_address("ha0", vip);
        expect(true);
        world.rtnl.remove(interface, address);
        expect(false);
        world.rtnl.add(interface, with_peer);
    }
    keepwatch.wait_log(&line, 1);
}

#[apply(trial)]
fn check_says_what_is_wrong() {
    let tracked = tracked(setup());
    let world = &tracked.world;
    let state = "VIP         169.254.0.5/24 on ha0: absent, would start as backup";
    world.rtnl.add_address("ha0", "169.254.0.5/32");
    let (_, misplaced) = world.setup.check();
    assert!(misplaced.contains(&format!("{state}; 169.254.0.5/32 is on ha0\n")), "{misplaced}");
    world.rtnl.delete("ha0");
    let conf = world.setup.conf_dir.join("conntrackd.conf");
    let readable = format!("conntrackd  {}: can be read\n", conf.display());
    assert!(misplaced.contains(&readable), "{misplaced}");
    std::fs::remove_file(&conf).unwrap();
    let (_, absent) = world.setup.check();
    let missing = "No such file or directory (ENOENT); would be retried\n";
    assert!(absent.contains(&readable.replace("can be read\n", missing)), "{absent}");
    assert!(absent.contains(&format!("{state}; interface not found\n")), "{absent}");
}

/// A link-local VIP on another interface may be right, so that is no trouble.
#[apply(trial)]
fn link_local_elsewhere_is_said_once() {
    let vip = "fe80::5/64";
    let world = World::with(setup().with(format!("--monitor_cidr={vip}")).with("--no-announce"));
    world.rtnl.add_address("ha0-peer", vip);
    let (_, report) = world.setup.check();
    let state = format!("{vip} on ha0: absent, would start as backup ({vip} is on ha0-peer)\n");
    assert!(report.contains(&state), "{report}");
    let keepwatch = world.setup.start();
    keepwatch.wait_log(&format!("{vip} is on ha0-peer; --monitor_interface is ha0\n"), 1);
    for present in [true, false] {
        world.rtnl.set_address("ha0", vip, present);
        world.agent.wait_acknowledged(if present { "master" } else { "backup" });
    }
    assert_eq!(world.setup.log().matches("--monitor_interface is").count(), 1);
    assert!(!keepwatch.status().contains("; "), "{}", keepwatch.status());
}
