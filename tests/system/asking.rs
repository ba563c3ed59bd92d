//! Promise 12: asking for the VIP harms nobody, and arrives. Each test has a switch and two or three hosts.

use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;

use lab::capture::{Capture, Frame};
use lab::daemon::{Running, Setup};
use lab::files::look;
use lab::namespace::Netns;
use lab::rtnl::Rtnl;

use crate::claims::{await_older_than_the_vip, probing, wait_probes};
use crate::world::{VIP, World, set_sysctl, setup};

/// The MAC of `ha0`.
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OURS_TEXT: &str = "02:00:00:00:00:01";

/// Runs `ip` or `bridge` in the current namespace. Returns its output.
fn run(command: &str) -> String {
    let words: Vec<_> = command.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A switch to which `ha0` of the current namespace and of others is connected. The ports are named like the hosts.
struct Segment {
    world: World,
    switch: Netns,
}

impl Segment {
    fn new(setup: Setup) -> Self {
        let (world, switch) = (World::with(setup), Netns::new());
        world.rtnl.move_to("ha0-peer", &switch);
        switch.run(|| {
            run("ip link add bridge type bridge mcast_snooping 0");
            run("ip link set bridge up");
        });
        let segment = Self { world, switch };
        segment.plug_in("ha0-peer", "bridge");
        segment.world.rtnl.set_mac("ha0", OURS);
        segment.world.rtnl.wait_running("ha0");
        segment
    }

    fn plug_in(&self, port: &str, bridge: &str) {
        self.switch.run(|| {
            let rtnl = Rtnl::new();
            rtnl.set_bridge(port, Some(bridge));
            rtnl.up(port);
        });
    }

    /// Adds a host whose port has this name.
    fn host(&self, port: &str, bridge: &str) -> Netns {
        let host = Netns::new();
        let rtnl = host.run(|| {
            let rtnl = Rtnl::new();
            rtnl.add_veth("ha0", port);
            rtnl.move_to(port, &self.switch);
            rtnl.up("ha0");
            rtnl
        });
        self.plug_in(port, bridge);
        host.run(|| rtnl.wait_running("ha0"));
        host
    }

    fn start(&self) -> Running<'_> {
        let keepwatch = self.world.setup.start();
        keepwatch.wait_state("master");
        keepwatch
    }
}

/// Adds the interface of a VRRP instance, with its virtual MAC and the VIP, in the current namespace.
fn add_virtual_mac(vip: &str) {
    run("ip link add vrrp.5 link ha0 address 00:00:5e:00:01:05 type macvlan mode private");
    let rtnl = Rtnl::new();
    rtnl.up("vrrp.5");
    rtnl.add_address("vrrp.5", vip);
}

/// A host that has learnt our MAC keeps it while the other master answers us.
#[apply(trial)]
fn third_host_keeps_our_mac() {
    let setup = probing("fd00::5/64");
    setup.expect(&["split brain: "]);
    let segment = Segment::new(setup);
    let host = segment.host("host", "bridge");
    let other = segment.host("other", "bridge");
    segment.world.rtnl.add_address("ha0", "fe80::1/64");
    host.run(|| Rtnl::new().add_address("ha0", "fd00::3/64"));
    await_older_than_the_vip();
    segment.world.rtnl.add_address("ha0", "fd00::5/64");
    let vip: Ipv6Addr = "fd00::5".parse().unwrap();
    let learnt = || host.run(|| run("ip neighbor show fd00::5 dev ha0"));
    let socket = host.run(|| UdpSocket::bind("[fd00::3]:0").unwrap());
    look("the host to learn our MAC", || {
        let _ = socket.send_to(b"", (vip, 9));
        learnt().contains(OURS_TEXT)
    });
    other.run(|| Rtnl::new().add_address("ha0", "fd00::5/64"));
    let wire = other.run(|| Capture::new("ha0"));
    let keepwatch = segment.start();
    keepwatch.wait_log("split brain: ", 1);
    let is_solicitation = |frame: &&Frame| frame.bytes.get(54) == Some(&135);
    wire.wait("more probes", |frames| frames.iter().filter(is_solicitation).count() >= 4);
    assert!(learnt().contains(OURS_TEXT), "{}", learnt());
}

/// A virtual MAC on a port that sends everything back: our own kernel answers our probes.
#[apply(trial)]
fn own_frames_come_back() {
    for vip in [VIP, "fd00::5/64"] {
        let mut setup = probing(vip);
        setup.interface = "vrrp.5".into();
        let segment = Segment::new(setup);
        segment.switch.run(|| run("bridge link set dev ha0-peer hairpin on"));
        segment.world.rtnl.add_address("ha0", "fe80::1/64");
        await_older_than_the_vip();
        add_virtual_mac(vip);
        let wire = segment.switch.run(|| Capture::new("ha0-peer"));
        let keepwatch = segment.start();
        let is_arp = |frame: &Frame, operation| frame.is_arp() && frame.bytes[21] == operation;
        let is_icmp = |frame: &Frame, kind| !frame.is_arp() && frame.bytes.get(54) == Some(&kind);
        let is_probe =
            |frame: &&Frame| (is_arp(frame, 1) || is_icmp(frame, 135)) && frame.source() == OURS;
        let frames = wire.wait("probes", |frames| frames.iter().filter(is_probe).count() >= 12);
        let is_answer = |frame: &Frame| is_arp(frame, 2) || is_icmp(frame, 136);
        assert!(frames.iter().any(is_answer), "our kernel answers");
        assert!(keepwatch.status().contains(" claimant=none "));
        assert!(!segment.world.setup.log().contains("has not answered"));
        keepwatch.terminate();
    }
}

/// The line about the missing address asks for one.
#[apply(trial)]
fn address_that_is_added_after_the_vip_asks() {
    let setup = probing("fd00::5/64");
    setup.expect(&["no probe on ha0: no MAC and address of its own to ask from"]);
    let segment = Segment::new(setup);
    segment.world.rtnl.add_address("ha0", "fd00::5/64");
    let wire = segment.switch.run(|| Capture::new("ha0-peer"));
    let keepwatch = segment.start();
    keepwatch.wait_log("no probe on ha0: ", 1);
    await_older_than_the_vip();
    segment.world.rtnl.add_address("ha0", "fe80::1/64");
    let own: Ipv6Addr = "fe80::1".parse().unwrap();
    let asks = |frame: &Frame| frame.bytes.get(22..38) == Some(&own.octets()[..]);
    wire.wait("a probe from the address", |frames| frames.iter().any(asks));
}

/// A switch that answers for others drops probes without a sender: every second probe is an ordinary request.
#[apply(trial)]
fn probe_arrives_behind_a_suppressing_switch() {
    let segment = Segment::new(probing("192.0.2.10/24"));
    segment.world.rtnl.add_address("ha0", "192.0.2.1/24");
    await_older_than_the_vip();
    segment.switch.run(|| {
        run("ip link add far type bridge mcast_snooping 0");
        run("ip link set far up");
        run("ip link add near0 type veth peer name far0");
    });
    segment.plug_in("near0", "bridge");
    segment.plug_in("far0", "far");
    segment.switch.run(|| {
        run("bridge link set dev near0 neigh_suppress on");
        run("bridge link set dev far0 neigh_suppress on");
    });
    let other = segment.host("other", "far");
    other.run(|| Rtnl::new().add_address("ha0", "192.0.2.10/24"));
    segment.world.rtnl.add_address("ha0", "192.0.2.10/24");
    let keepwatch = segment.start();
    keepwatch.wait_log("split brain: ", 1);
}

/// Both masters have the same virtual MAC. The switch learns the other's port from its answer, and ours again from our
/// announcement.
#[apply(trial)]
fn switch_learns_our_port_again() {
    let mut setup = setup().with("--probe=1");
    setup.interface = "vrrp.5".into();
    setup.expect(&["split brain: "]);
    let segment = Segment::new(setup);
    let other = segment.host("other", "bridge");
    let add_vip = || {
        set_sysctl("ipv4/conf/ha0/arp_ignore", 1);
        add_virtual_mac(VIP);
    };
    add_vip();
    let keepwatch = segment.start();
    other.run(add_vip);
    let wire = other.run(|| Capture::new("ha0"));
    keepwatch.wait_log("split brain: 00:00:5e:00:01:05 ", 1);
    wait_probes(&wire, 3);
    look("the switch to have learnt our port", || {
        let table = segment.switch.run(|| run("bridge fdb show br bridge"));
        table.lines().any(|line| line.starts_with("00:00:5e:00:01:05 dev ha0-peer "))
    });
}

/// The interface is replaced by one with a virtual MAC, whose answers the link below it receives.
#[apply(trial)]
fn interface_gets_a_virtual_mac() {
    let mut setup = probing(VIP);
    setup.interface = "vrrp.5".into();
    setup.expect(&["watched interface vrrp.5 not found", "split brain: "]);
    let segment = Segment::new(setup);
    run("ip link add vrrp.5 link ha0 type macvlan mode private");
    segment.world.rtnl.up("vrrp.5");
    segment.world.rtnl.add_address("vrrp.5", VIP);
    let keepwatch = segment.start();
    run("ip link delete vrrp.5");
    keepwatch.wait_state("backup");
    add_virtual_mac(VIP);
    keepwatch.wait_state("master");
    let other = segment.host("other", "bridge");
    other.run(|| Rtnl::new().add_address("ha0", VIP));
    keepwatch.wait_log("split brain: ", 1);
}

/// Another host may have the own address by now.
#[apply(trial)]
fn deleted_own_address_asks_no_more() {
    let world = World::with(probing("192.0.2.10/32"));
    let own = "192.0.2.1/24";
    world.rtnl.add_address("ha0", own);
    await_older_than_the_vip();
    world.rtnl.add_address("ha0", "192.0.2.10/32");
    let keepwatch = world.setup.start();
    let asks = |frame: &&Frame, from| frame.is_arp() && frame.bytes[28..32] == [192, 0, 2, from];
    let wire = Capture::new("ha0-peer");
    wire.wait("an ordinary request", |frames| frames.iter().any(|frame| asks(&frame, 1)));
    world.rtnl.delete_address("ha0", own);
    let wire = Capture::new("ha0-peer");
    let is_probe = |frame: &&Frame| frame.asks_for([192, 0, 2, 10].into());
    let frames = wire.wait("probes", |frames| frames.iter().filter(is_probe).count() >= 6);
    assert!(!frames.iter().skip(1).any(|frame| asks(&frame, 1)), "{frames:?}");
    keepwatch.terminate();
}
