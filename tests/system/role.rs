//! Promise 11: who announces, and which addresses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::{Capture, Frame};
use lab::daemon::Running;
use lab::rtnl::{Address, Rtnl};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::announce::{MAC, announcements, arp_rounds, backup, bytes, is_announcement, world};
use crate::world::{World, up_quietly};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        backup_is_silent_and_sleeps,
        rounds_end_with_the_vip_and_begin_anew_with_it,
        virtual_mac_of_a_backup,
        virtual_mac_of_another_vrrp_instance,
        what_was_there_at_the_start,
        address_with_two_prefixes_or_peers,
    ]
}

/// As keepalived makes it for VRRP instance 51 and IPv6.
const VIRTUAL_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x02, 51];
const LINK_LOCAL: &str = "fe80::200:5eff:fe00:233/64";

/// What waits on a backup is announced when the VIP comes, but for what has gone by then; and it wakes
/// nobody.
fn backup_is_silent_and_sleeps() {
    let (world, capture) = backup(&[]);
    let keepwatch = world.setup.start();
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    world.rtnl.add_address("lan0", "10.0.0.2/24");
    world.rtnl.delete_address("lan0", "10.0.0.2/24");
    keepwatch.counter("events");
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.counter("announcements"), 0);
    assert_silent(&capture);
    world.set_vip(true);
    let frames = announcements(&capture, &keepwatch, 6);
    assert_eq!(bytes(&frames), arp_rounds(MAC, 3));
    // They have been announced, and need not be again.
    for present in [false, true] {
        world.set_vip(present);
        keepwatch.wait_state(if present { "master" } else { "backup" });
    }
    announcements(&capture, &keepwatch, 6);
}

fn rounds_end_with_the_vip_and_begin_anew_with_it() {
    let (world, capture) = world(&["--garp_master_delay=0.5"]);
    let keepwatch = world.setup.start();
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    let announced = |frames: &[Frame]| frames.iter().filter(|f| is_announcement(f)).count();
    capture.wait("the first round", |frames| announced(frames) == 2);
    world.set_vip(false);
    keepwatch.wait_state("backup");
    keepwatch.wait_asleep();
    world.set_vip(true);
    let frames = announcements(&capture, &keepwatch, 2 + 6);
    assert_eq!(bytes(&frames), arp_rounds(MAC, 4));
    let apart = frames[4].at - frames[2].at;
    assert!(apart > Duration::from_millis(450), "{apart:?} from round to round");
}

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

/// Its state is another's, and nobody here knows it.
fn virtual_mac_of_another_vrrp_instance() {
    let (world, capture) = backup(&["--garp_master_repeat=1"]);
    world.rtnl.set_mac("ha0", [0x00, 0x00, 0x5e, 0x00, 0x01, 51]);
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for instance in [50, 51, 52] {
        let name = format!("vrrp{instance}");
        world.rtnl.add_macvlan(&name, "lan0", [0x00, 0x00, 0x5e, 0x00, 0x01, instance]);
        up_quietly(&world.rtnl, &name);
        world.rtnl.wait_running(&name);
        world.rtnl.add_address(&name, &format!("10.0.0.{instance}/24"));
    }
    let ours = [0x00, 0x00, 0x5e, 0x00, 0x01, 51];
    let reply = arp::announcement(Operation::Reply, ours, [10, 0, 0, 51].into());
    capture.wait("the reply", |frames| frames.iter().any(|f| f.bytes[..] == reply[..]));
    keepwatch.counter("events");
    keepwatch.wait_asleep();
    let foreign = |frame: &&Frame| frame.is_arp() && frame.source() != ours;
    assert_eq!(capture.frames().iter().find(foreign), None);
}

/// It is not announced, whatever happens to others while the daemon reads what there is.
fn what_was_there_at_the_start() {
    let (world, capture) = world(&["--garp_master_repeat=1", "--netlink-rcvbuf=33554432"]);
    for n in 100..200 {
        world.rtnl.add_address("lan0", &format!("10.0.1.{n}/32"));
    }
    let is_about = |frame: &Frame, net: [u8; 3]| frame.is_arp() && frame.bytes[28..31] == net;
    let started = AtomicBool::new(false);
    let keepwatch = std::thread::scope(|scope| {
        scope.spawn(|| {
            let rtnl = Rtnl::new();
            let addresses =
                (2..=255).flat_map(|m| (0..=255).map(move |n| format!("10.1.{m}.{n}/32")));
            for address in addresses.take_while(|_| !started.load(Ordering::Relaxed)) {
                rtnl.add_address("lan0", &address);
                // As many as the daemon has room for, however long its start takes.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let keepwatch = world.setup.start();
        started.store(true, Ordering::Relaxed);
        keepwatch
    });
    world.rtnl.add_address("lan0", "10.0.2.2/32");
    capture.wait("the last one", |frames| frames.iter().any(|f| is_about(f, [10, 0, 2])));
    keepwatch.wait_asleep();
    assert_eq!(capture.frames().iter().find(|frame| is_about(frame, [10, 0, 1])), None);
}

/// Of two that differ in nothing else, one goes: the rounds of the other go on.
fn address_with_two_prefixes_or_peers() {
    let (world, capture) = world(&["--garp_master_repeat=2", "--garp_master_delay=0.5"]);
    let keepwatch = world.setup.start();
    let with_peer = |peer| Address { peer: Some(peer), ..Address::new("10.0.0.1/32") };
    let (one, other) = (with_peer([10, 9, 0, 1].into()), with_peer([10, 9, 0, 2].into()));
    let mut count = 0;
    for (gone, kept) in [(Address::new("10.0.0.1/24"), Address::new("10.0.0.1/32")), (one, other)] {
        world.rtnl.add("lan0", gone);
        world.rtnl.add("lan0", kept);
        count += 4;
        let first =
            |frames: &[Frame]| frames.iter().filter(|f| is_announcement(f)).count() == count;
        capture.wait("the first rounds", first);
        world.rtnl.remove("lan0", gone);
        count += 2;
        announcements(&capture, &keepwatch, count);
        world.rtnl.remove("lan0", kept);
    }
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
