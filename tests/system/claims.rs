//! Promise 12: claims of another station are detected while the VIP is ours.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::{Capture, Frame};
use lab::daemon::{Running, Setup};
use lab::files::{await_readable, content, look};
use lab::namespace::{Netns, Pids};
use lab::rtnl::Rtnl;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use smoltcp::wire::{Icmpv6Packet, Ipv6Packet};

use crate::list::table;
use crate::metrics::world_with;
use crate::stalls::stop;
use crate::world::{NO_INTERFACE, World, add_interface, setup, up_quietly};

const VIP: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 5);
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Returns the setup of a daemon that announces nothing, and asks every second who has this VIP.
pub fn probing(vip: &str) -> Setup {
    setup().with("--no-announce").with("--probe=1").with(format!("--monitor_cidr={vip}"))
}

fn start_listening(world: &World) -> Running<'_> {
    let keepwatch = world.setup.start();
    wait_listening(&keepwatch);
    keepwatch
}

/// Waits until the daemon receives claims. It does so in the turn in which it writes `master`, before it handles a
/// signal.
fn wait_listening(keepwatch: &Running<'_>) {
    keepwatch.wait_state("master");
    keepwatch.status();
}

/// Whether a frame asks for the VIP, as a probe or as an ordinary request.
pub fn is_probe(frame: &Frame) -> bool {
    frame.asks_for(VIP) && frame.bytes[28..32] != VIP.octets()
}

/// Waits for this number of probes about the VIP.
pub fn wait_probes(wire: &Capture, probes: usize) -> Vec<Frame> {
    let frames = wire
        .wait("probes", |frames| frames.iter().filter(|frame| is_probe(frame)).count() >= probes);
    frames.into_iter().filter(is_probe).collect()
}

/// Claims the VIP, and again once our probe shows that a second has passed.
pub fn claim_twice(wire: &Capture, claim: &[u8]) {
    wire.send(claim);
    wait_probes(wire, 1);
    wire.send(claim);
}

/// Two stations claim the VIP, among frames that are no claims. They claim it again after a second, and answer nothing.
#[apply(trial)]
fn split_brain_begins_and_ends() {
    let (world, figures) = world_with(setup().with("--garp_master_delay=0.2"));
    world.rtnl.set_mac("ha0", OURS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    let claim = |operation, mac| arp::announcement(operation, mac, VIP);
    figures.wait("split_brain", 0);
    assert!(keepwatch.status().contains(" claimant=none "));
    assert_eq!(keepwatch.counter("claims"), 0);
    let first = Instant::now();
    for operation in [Operation::Request, Operation::Reply] {
        wire.send(&claim(operation, THEIRS));
    }
    // Not claims: our own frame, another address, a probe.
    wire.send(&claim(Operation::Request, OURS));
    wire.send(&arp::announcement(Operation::Request, THEIRS, [169, 254, 0, 6].into()));
    wire.send(&arp::probe_from(THEIRS, (THEIRS, Ipv4Addr::UNSPECIFIED), VIP));
    let third = [2, 0, 0, 0, 0, 3];
    wire.send(&claim(Operation::Request, third));
    let probe = wait_probes(&wire, 1).remove(0);
    assert_eq!(probe.bytes, arp::probe_from(OURS, (OURS, Ipv4Addr::UNSPECIFIED), VIP));
    assert!(keepwatch.status().contains(" claimant=none "), "a claim is a suspicion");
    let last = Instant::now();
    wire.send(&claim(Operation::Reply, THEIRS));
    let index = world.rtnl.ifindex("ha0");
    let line =
        format!("split brain: 02:00:00:00:00:02 claims 169.254.0.5 on ha0 (index {index})\n");
    keepwatch.wait_log(&line, 1);
    figures.wait("split_brain", 1);
    assert!(keepwatch.status().contains(" claimant=02:00:00:00:00:02 "));
    assert_eq!(keepwatch.counter("claims"), 4);
    let is_ours = |frame: &&Frame| {
        let is_to_all = frame.bytes[..6] == [0xff; 6];
        frame.is_arp() && is_to_all && frame.source() == OURS && frame.bytes[28..32] == VIP.octets()
    };
    wire.wait("three rounds", |frames| frames.iter().filter(is_ours).count() == 6);
    // Without further claims the episode ends.
    let over = "split brain over: by 02:00:00:00:00:02 for ";
    keepwatch.wait_log(over, 1);
    let half = Duration::from_millis(500);
    let [lasted, silent] = [first, last].map(|time| (time.elapsed() + half).as_secs());
    let log = world.setup.log();
    let line = log.split_once(over).unwrap().1.lines().next().unwrap();
    let mut words = line.split(' ');
    let [said_lasted, said_silent] = [0, 5].map(|at| words.nth(at).unwrap().parse().unwrap());
    let end = "it claims nothing, and could not be asked";
    assert_eq!(line, format!("{said_lasted} s (claims: 4), silent for {said_silent} s: {end}"));
    // The claims lasted a second, as the probe showed, and longer on a busy machine.
    assert!((1..=lasted - 30).contains(&said_lasted), "{line}");
    assert!((30..=silent).contains(&said_silent), "{line}");
    figures.wait("split_brain", 0);
    world.set_vip(false);
    keepwatch.wait_state("backup");
    // What another active router sends to a backup is no claim, nor is it one later.
    wire.send(&claim(Operation::Reply, third));
    await_readable(keepwatch.socket(SockType::Raw), "the frame");
    world.set_vip(true);
    wait_listening(&keepwatch);
    assert!(keepwatch.status().contains(" claimant=none "));
    assert_eq!(keepwatch.counter("claims"), 4);
}

/// The line is no warning. The agent gets the state again, as the other station's may have undone its effects.
#[apply(trial)]
fn one_claim_is_no_split_brain() {
    let world = World::with(setup().with("--no-announce").with("--detect-split-brain"));
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    for _ in 0..40 {
        wire.send(&arp::announcement(Operation::Request, THEIRS, VIP));
    }
    keepwatch.wait_log("02:00:00:00:00:02 claimed 169.254.0.5 once and has not answered\n", 1);
    // Frames that are read later make an answer to the first probe uncertain.
    assert!((3..=6).contains(&wait_probes(&wire, 3).len()));
    assert_eq!(keepwatch.counter("claims"), 40);
    keepwatch.wait_counter("notifications", 2);
    assert!(!world.setup.log().contains("split brain"), "{}", world.setup.log());
}

/// Asserts that probes find a station that has the VIP and is otherwise silent. Our own kernel does not answer them.
fn assert_silent_master_is_found(vip: &str, probe: &[u8]) {
    let world = World::with(probing(vip));
    world.rtnl.set_mac("ha0", OURS);
    world.rtnl.add_address("ha0", "fe80::1/64");
    await_older_than_the_vip();
    let other = Netns::new();
    world.rtnl.move_to("ha0-peer", &other);
    let (rtnl, wire) = other.run(|| {
        let rtnl = Rtnl::new();
        rtnl.set_mac("ha0-peer", THEIRS);
        up_quietly(&rtnl, "ha0-peer");
        (rtnl, Capture::new("ha0-peer"))
    });
    world.rtnl.add_address("ha0", vip);
    let keepwatch = start_listening(&world);
    let is_this = |frame: &&Frame| frame.bytes == probe;
    wire.wait("two probes", |frames| frames.iter().filter(is_this).count() >= 2);
    assert_eq!(keepwatch.counter("claims"), 0);
    other.run(|| rtnl.add_address("ha0-peer", vip));
    keepwatch.wait_log("split brain: 02:00:00:00:00:02 claims ", 1);
    keepwatch.wait_counter("claims", 3);
    other.run(|| rtnl.delete_address("ha0-peer", vip));
    keepwatch.wait_log("split brain over: by 02:00:00:00:00:02 ", 1);
    assert!(world.setup.log().contains(" s: it no longer answers\n"));
    assert_eq!(world.setup.state(), "master");
}

/// Waits until an address is certainly older than one that is added next. keepalived adds all VIPs at once.
pub fn await_older_than_the_vip() {
    let added = Instant::now();
    look("the address to be older", || added.elapsed() > Duration::from_millis(1100));
}

#[apply(trial)]
fn silent_master() {
    let probe = arp::probe_from(OURS, (OURS, Ipv4Addr::UNSPECIFIED), VIP);
    assert_silent_master_is_found("169.254.0.5/24", &probe);
}

#[apply(trial)]
fn silent_master_over_ipv6() {
    let [own, vip] = ["fe80::1", "fd00::5"].map(|ip| ip.parse().unwrap());
    assert_silent_master_is_found("fd00::5/64", &ndisc::probe_from(OURS, own, vip));
}

#[apply(trial)]
fn interface_recreated() {
    let world = World::new();
    world.setup.expect(&[NO_INTERFACE]);
    world.set_vip(true);
    let keepwatch = world.setup.start();
    for n in 3..6 {
        world.rtnl.delete("ha0");
        keepwatch.wait_state("backup");
        add_interface(&world.rtnl, "ha0");
        world.set_vip(true);
        wait_listening(&keepwatch);
        let mac = [2, 0, 0, 0, 0, n];
        let claim = arp::announcement(Operation::Request, mac, VIP);
        let wire = Capture::new("ha0-peer");
        claim_twice(&wire, &claim);
        keepwatch.wait_log(&format!("split brain: 02:00:00:00:00:0{n}"), 1);
    }
}

/// A link of this host has a station's MAC, and goes just before that station claims the VIP. The daemon has been told of
/// both before it reads either.
#[apply(trial)]
fn claim_right_behind_the_end_of_an_own_link() {
    let world = World::new();
    world.rtnl.add_veth("lan", "lan-peer");
    world.rtnl.set_mac("lan", THEIRS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let wire = Capture::new("ha0-peer");
    let claim = arp::announcement(Operation::Request, THEIRS, VIP);
    wire.send(&claim);
    // A later claim that counts shows that the first has been read.
    wire.send(&arp::announcement(Operation::Request, [2, 0, 0, 0, 0, 3], VIP));
    keepwatch.wait_counter("claims", 1);
    assert_eq!(keepwatch.counter("claims"), 1, "its own link claims nothing");
    stop(&keepwatch);
    world.rtnl.delete("lan");
    wire.send(&claim);
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_counter("claims", 2);
}

/// An advertisement with a signature (RFC 3971 section 5.2) is longer than one without.
#[apply(trial)]
fn signed_advertisement() {
    let world = World::with(setup().with("--monitor_cidr=fd00::5/64"));
    world.rtnl.add_address("ha0", "fd00::5/64");
    let keepwatch = start_listening(&world);
    let mut frame = ndisc::advertisement(THEIRS, "fd00::5".parse().unwrap(), true).to_vec();
    frame.extend([12, 16]);
    frame.extend([7; 126]);
    let packet = &mut frame[14..];
    let length = u16::try_from(packet.len() - 40).unwrap();
    let mut packet = Ipv6Packet::new_unchecked(packet);
    packet.set_payload_len(length);
    let [from, to] = [packet.src_addr(), packet.dst_addr()];
    Icmpv6Packet::new_unchecked(packet.payload_mut()).fill_checksum(&from, &to);
    Capture::new("ha0-peer").send(&frame);
    keepwatch.wait_counter("claims", 1);
}

/// Claims in another VLAN, claims sent to another host, and malformed claims do not wake the daemon.
#[apply(trial)]
fn frames_for_others() {
    let world = World::new();
    world.rtnl.set_mac("ha0", OURS);
    world.set_vip(true);
    let keepwatch = start_listening(&world);
    let (wire, arrived) = (Capture::new("ha0-peer"), Capture::new("ha0"));
    let claim = arp::announcement(Operation::Reply, THEIRS, VIP);
    let (addresses, rest) = claim.split_at(12);
    let tagged = |vlan: u8| [addresses, &[0x81, 0, 0, vlan], rest].concat();
    let to = |mac: [u8; 6]| [&mac, &claim[6..]].concat();
    // Other hardware, another protocol, and other address lengths.
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
    // VLAN 0 means none, and the second frame is sent to this host.
    wire.send(&tagged(0));
    wire.send(&to(OURS));
    keepwatch.wait_counter("claims", 2);
    assert_eq!(keepwatch.counter("claims"), 2);
}

/// Without detection, nothing is known.
#[apply(trial)]
fn nobody_listens() {
    let pids = Pids::new();
    for (option, cell, samples, claimant) in
        [("--debug", "-", 0, "-"), ("--detect-split-brain", "no", 2, "none")]
    {
        let (world, figures) = world_with(setup().with("--no-announce").with(option));
        world.set_vip(true);
        let keepwatch = pids.run(|| world.setup.start());
        figures.wait("active", 1);
        let text = content(&figures.0);
        let of_others = |line: &&str| {
            ["keepwatch_split_brain{", "keepwatch_claims_total{"]
                .iter()
                .any(|n| line.starts_with(n))
        };
        assert_eq!(text.lines().filter(of_others).count(), samples, "{text}");
        let (code, rows) = table(&pids);
        assert_eq!((code, &*rows[0][11]), (Some(0), cell), "{rows:?}");
        let status = keepwatch.status();
        assert!(status.contains(&format!(" claimant={claimant} ")), "{status}");
        assert_eq!(status.contains(" claims="), samples > 0, "{status}");
        keepwatch.terminate();
    }
}
