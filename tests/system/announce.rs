//! Promise 11: new addresses are announced, as another station sees it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::{Capture, Frame};
use lab::daemon::Running;
use lab::files::content;
use lab::rtnl::{Address, Rtnl};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use crate::world::{World, add_interface, set_sysctl, setup};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IPV4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// Returns a world with the VIP and another interface, `lan0`, and a capture at its other end. Announcements are fast.
fn world(options: &[&str]) -> (World, Capture) {
    let (world, capture) = backup(options);
    world.set_vip(true);
    (world, capture)
}

/// Returns such a world without the VIP.
fn backup(options: &[&str]) -> (World, Capture) {
    let setup = setup().with("--garp_master_delay=0.2").with("--garp_interval=0");
    let world = World::with(options.iter().fold(setup, |setup, option| setup.with(*option)));
    add_lan(&world.rtnl, "lan0", MAC);
    let capture = Capture::new("lan0-peer");
    (world, capture)
}

fn add_lan(rtnl: &Rtnl, name: &str, mac: [u8; 6]) {
    add_interface(rtnl, name);
    rtnl.set_mac(name, mac);
}

/// Waits for `count` announcements and until none is pending.
fn announcements(capture: &Capture, keepwatch: &Running<'_>, count: usize) -> Vec<Frame> {
    let ours = |frames: &[Frame]| -> Vec<Frame> {
        frames.iter().filter(|frame| is_announcement(frame)).cloned().collect()
    };
    capture.wait(&format!("{count} announcements"), |frames| ours(frames).len() >= count);
    keepwatch.wait_asleep();
    let frames = ours(&capture.frames());
    assert_eq!(frames.len(), count, "{frames:?}");
    frames
}

/// Whether a frame is ARP or a neighbour advertisement of one of our interfaces, whose MACs differ in the last byte.
fn is_announcement(frame: &Frame) -> bool {
    (frame.is_arp() || frame.is_advertisement()) && frame.source()[..5] == MAC[..5]
}

fn bytes(frames: &[Frame]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.bytes.clone()).collect()
}

fn arp_rounds(mac: [u8; 6], rounds: usize) -> Vec<Vec<u8>> {
    let kinds = [Operation::Request, Operation::Reply];
    kinds
        .iter()
        .cycle()
        .take(2 * rounds)
        .map(|kind| arp::announcement(*kind, mac, IPV4).into())
        .collect()
}

fn advertisements(router: bool, rounds: usize) -> Vec<Vec<u8>> {
    vec![ndisc::advertisement(MAC, IPV6, router).into(); rounds]
}

/// Three rounds, two seconds apart.
#[apply(trial)]
fn ipv4() {
    let (world, capture) = world(&["--garp_master_delay=2"]);
    let keepwatch = world.setup.start();
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    let frames = announcements(&capture, &keepwatch, 6);
    assert_eq!(bytes(&frames), arp_rounds(MAC, 3));
    for (earlier, later) in [(0, 2), (2, 4)] {
        let apart = frames[later].at - frames[earlier].at;
        assert!(apart > Duration::from_millis(1900), "{apart:?} from round to round");
    }
    assert_eq!(keepwatch.counter("announcements"), 6);
}

#[apply(trial)]
fn advertisements_say_whether_the_interface_forwards() {
    let (world, capture) = world(&["--garp_master_repeat=1"]);
    set_sysctl("ipv6/conf/lan0/forwarding", 1);
    let keepwatch = world.setup.start();
    let mut expected = Vec::new();
    for (path, forwarding) in [("lan0", 1), ("lan0", 0), ("all", 1), ("all", 0)] {
        set_sysctl(&format!("ipv6/conf/{path}/forwarding"), forwarding);
        world.rtnl.add_address("lan0", "fd00::1/64");
        expected.extend(advertisements(forwarding == 1, 1));
        let frames = announcements(&capture, &keepwatch, expected.len());
        assert_eq!(bytes(&frames), expected);
        world.rtnl.delete_address("lan0", "fd00::1/64");
    }
}

/// Also where they are sent only after a claim, and other addresses have no events.
#[apply(trial)]
fn advertisements_after_a_claim_say_whether_the_interface_forwards() {
    let (world, capture) = world(&["--garp_master_repeat=1", "--no-announce", "--probe=1"]);
    let wire = Capture::new("ha0-peer");
    world.rtnl.add_address("lan0", "fd00::1/64");
    let keepwatch = world.setup.start();
    // All links have been listed before it.
    wire.wait("a probe", |frames| frames.iter().any(Frame::is_arp));
    set_sysctl("ipv6/conf/lan0/forwarding", 1);
    let vip = Ipv4Addr::new(169, 254, 0, 5);
    wire.send(&arp::announcement(Operation::Request, [2, 0, 0, 0, 0, 9], vip));
    assert_eq!(bytes(&announcements(&capture, &keepwatch, 1)), advertisements(true, 1));
}

#[apply(trial)]
fn irrelevant_addresses_are_not_announced() {
    let (world, capture) = backup(&["--garp_master_repeat=1"]);
    let on_ha0 = Capture::new("ha0-peer");
    world.rtnl.set_mac("ha0", [2, 0, 0, 0, 0, 7]);
    world.rtnl.up("lo");
    world.rtnl.add_address("lan0", "10.0.0.9/24");
    let keepwatch = world.setup.start();
    // A backup announces nothing, a new active router what there is.
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    keepwatch.counter("events");
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.counter("announcements"), 0, "announcements of a backup");
    world.set_vip(true);
    announcements(&capture, &keepwatch, 4);
    // Not announced: the watched interface, loopback, multicast, a link without ARP.
    world.rtnl.add_address("ha0", "169.254.192.7/18");
    world.rtnl.add_address("lo", "10.0.0.8/32");
    world.rtnl.flag("lan0", LinkFlags::Noarp, true);
    world.rtnl.add_address("lan0", "10.0.0.7/24");
    world.rtnl.flag("lan0", LinkFlags::Noarp, false);
    world
        .rtnl
        .add("lan0", Address { flags: AddressFlags::Mcautojoin, ..Address::new("224.0.0.9/32") });
    // Not announced either: a refresh of an address that existed at the start. The kernel's times of creation and
    // change have a resolution of 10 ms.
    std::thread::sleep(Duration::from_millis(20));
    let old = Address { lifetime: Some(1000), ..Address::new("10.0.0.9/24") };
    world.rtnl.add("lan0", old);
    // One more announcement marks the end.
    world.rtnl.delete_address("lan0", "10.0.0.1/24");
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    let frames = announcements(&capture, &keepwatch, 6);
    assert_eq!(bytes(&frames[2..]), arp_rounds(MAC, 2));
    let on_ha0 = on_ha0.frames();
    assert!(!on_ha0.iter().any(is_announcement), "on the watched interface: {on_ha0:?}");
}

/// Adds 4,096 addresses while the VIP flips, which interrupts their rounds. In the end each address has been announced
/// three times, every flip has been delivered, and memory has not grown.
#[apply(trial_with_other_users)] // Only root can have a large buffer for the frames.
fn thousands_at_once() {
    let (world, _) = backup(&["--garp_interval=0.0001"]);
    // On a busy machine these events overrun the queue.
    world.setup.expect(&["netlink events lost; resynchronising", "dump of "]);
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    let cidr = |n: u32| format!("10.{}.{}.1/32", n / 256, n % 256);
    // The first time, the table grows to its full size.
    (0..4096).for_each(|n| world.rtnl.add_address("lan0", &cidr(n)));
    world.deliver(true);
    world.deliver(false);
    (0..4096).for_each(|n| world.rtnl.delete_address("lan0", &cidr(n)));
    keepwatch.wait_asleep();
    let before = keepwatch.proc_status("RssAnon");
    // On a busy machine some have been sent meanwhile.
    let uncaptured = keepwatch.counter("announcements");
    let sent = || (keepwatch.counter("announcements") - uncaptured) as usize;
    let capture = Capture::new("lan0-peer");
    (0..4096).for_each(|n| world.rtnl.add_address("lan0", &cidr(n)));
    (0..20).for_each(|n| world.deliver(n % 2 == 0));
    keepwatch.wait_asleep();
    let cut_off = sent();
    world.deliver(true);
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.proc_status("RssAnon"), before, "memory has grown");
    let mut times = HashMap::new();
    for frame in &announcements(&capture, &keepwatch, sent())[cut_off..] {
        *times.entry(frame.bytes[28..32].to_vec()).or_insert(0) += 1;
    }
    assert!(times.len() == 4096 && times.values().all(|times| *times == 6));
    assert_eq!(keepwatch.counter("unannounced_addresses"), 0);
    assert_eq!(keepwatch.counter("transitions"), 24);
}

#[apply(trial)]
fn no_socket_without_need() {
    let sockets = || content("/proc/thread-self/net/packet".as_ref()).lines().count() - 1;
    for (options, expected) in
        [(&["--no-announce"][..], 0), (&["--no-announce", "--detect-split-brain"], 1), (&[], 1)]
    {
        let world = World::with(options.iter().fold(setup(), |setup, option| setup.with(*option)));
        let keepwatch = world.setup.start();
        assert_eq!(sockets(), expected, "{options:?}");
        world.rtnl.add_veth("lan0", "lan0-peer");
        drop(keepwatch);
    }
}

/// A blocked queue holds no frame, so it takes no room in the send buffer from other interfaces.
#[apply(trial)]
fn blocked_transmit_queue() {
    let (world, capture) = world(&[]);
    add_lan(&world.rtnl, "bad0", [2, 0, 0, 0, 1, 1]);
    // Two ARP packets pass, and then one byte a second.
    let queue = ["dev", "bad0", "root", "tbf", "rate", "8bit", "burst", "90", "limit", "1000000"];
    let status = Command::new("tc").args(["qdisc", "add"]).args(queue).status();
    assert!(status.expect("tc, of the package iproute2").success());
    let keepwatch = world.setup.start();
    for n in 0..500 {
        world.rtnl.add_address("bad0", &format!("10.1.{}.{}/32", n / 256, n % 256));
    }
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    assert_eq!(bytes(&announcements(&capture, &keepwatch, 6)), arp_rounds(MAC, 3));
    keepwatch.wait_counter("announcements", 501 * 6);
    assert_eq!(keepwatch.counter("announcement_failures"), 0);
}

/// The kernel lists the addresses of one link in several parts, and sets no flag if they have gaps.
#[apply(trial_with_other_users)] // Only root can have a large buffer for the frames.
fn link_with_many_addresses_is_listed_once() {
    let (world, capture) = world(&["--garp_master_repeat=1"]);
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    // A change would interrupt its list of all addresses.
    keepwatch.wait_asleep();
    for n in 0..1000 {
        world.rtnl.add_address("lan0", &format!("10.0.{}.{}/32", n / 250, n % 250 + 1));
    }
    announcements(&capture, &keepwatch, 2000);
    world.rtnl.down("lan0");
    world.rtnl.up("lan0");
    announcements(&capture, &keepwatch, 4000);
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.counter("dump_failures"), 0);
}
