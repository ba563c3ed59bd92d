//! Promise 11: who announces, and which addresses.

use keepwatch::wire::ndisc;
use lab::capture::{Capture, Frame};
use lab::daemon::Running;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::announce::backup;
use crate::world::{World, up_quietly};

pub fn trials() -> Vec<Trial> {
    lab::trials![virtual_mac_of_a_backup]
}

/// As keepalived makes it for VRRP instance 51 and IPv6.
const VIRTUAL_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x02, 51];
const LINK_LOCAL: &str = "fe80::200:5eff:fe00:233/64";

/// keepalived gives an interface with a virtual MAC a link-local address on every router. Were a backup to
/// announce that, the switch would send it what is meant for the master.
fn virtual_mac_of_a_backup() {
    let (world, capture) = backup(&["--netlink-rcvbuf=4096"]);
    let keepwatch = world.setup.start();
    world.rtnl.add_macvlan("vrrp51", "lan0", VIRTUAL_MAC);
    up_quietly(&world.rtnl, "vrrp51");
    world.rtnl.wait_running("vrrp51");
    world.rtnl.add_address("vrrp51", LINK_LOCAL);
    assert_says_nothing(&keepwatch, &capture);
    // Nor after a loss of carrier, nor after one of events.
    world.rtnl.down("lan0-peer");
    keepwatch.counter("events");
    world.rtnl.up("lan0-peer");
    world.rtnl.wait_running("vrrp51");
    assert_says_nothing(&keepwatch, &capture);
    lose_events(&world, &keepwatch);
    assert_says_nothing(&keepwatch, &capture);
    world.set_vip(true);
    let advertisement = ndisc::advertisement(VIRTUAL_MAC, ip(LINK_LOCAL), false);
    capture.wait("three rounds", |frames| {
        frames.iter().filter(|frame| frame.bytes[..] == advertisement[..]).count() == 3
    });
}

fn ip(cidr: &str) -> std::net::Ipv6Addr {
    cidr.split('/').next().unwrap().parse().unwrap()
}

/// The daemon has read all that there was, and does not mean to do anything about it.
fn assert_says_nothing(keepwatch: &Running<'_>, capture: &Capture) {
    keepwatch.counter("events");
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.counter("announcements"), 0);
    assert_silent(capture);
}

/// What was heard is from the kernel, whose advertisements, unlike ours, go to nobody in particular.
fn assert_silent(capture: &Capture) {
    let ours = |frame: &&Frame| frame.is_arp() || frame.is_advertisement();
    assert_eq!(capture.frames().iter().find(ours), None);
}

fn lose_events(world: &World, keepwatch: &Running<'_>) {
    keepwatch.signal(Signal::SIGSTOP);
    for n in 0..100 {
        world.rtnl.add_address("ha0", &format!("10.0.3.{n}/32"));
    }
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_counter("overruns", 1);
}
