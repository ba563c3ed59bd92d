//! Promises 6 and 7 with keepalived: two nodes with Neutron's configuration. Their agents get exactly keepalived's own
//! states.

use std::fs;
use std::mem::replace;

use lab::capture::{Capture, Frame};
use lab::daemon::Running;
use lab::files::{Watch, content, look, write_program};
use nix::sys::signal::Signal;

use crate::node::{Network, Node};

/// Starts two nodes, of which the left one has the higher priority and becomes master, and runs a test.
fn play(virtual_mac: bool, preempt: bool, play: impl FnOnce(&Node, &Node, &Running)) {
    let network = Network::new();
    let [left, right] = [("left", 1, 60), ("right", 2, 50)].map(|(name, number, priority)| {
        let mut node = Node::new(name, number, &network);
        if virtual_mac {
            node.use_virtual_mac();
        }
        node.configure(priority, preempt, None);
        node
    });
    let (left_keepwatch, _right_keepwatch) = (left.watch(), right.watch());
    left.start_keepalived();
    left.wait("MASTER");
    right.start_keepalived();
    right.wait("BACKUP");
    play(&left, &right, &left_keepwatch);
    left.assert_in_step();
    right.assert_in_step();
}

/// keepwatch and keepalived call the same script in the same way.
#[apply(trial)]
fn hook_in_place_of_a_notify_script() {
    let network = Network::new();
    let (mut left, right) = (Node::new("left", 1, &network), Node::new("right", 2, &network));
    let directory = left.setup.directory().join("calls");
    fs::create_dir(&directory).unwrap();
    let script = left.setup.directory().join("notify");
    // Only a hook has its state in the environment.
    let file = "${KEEPWATCH_STATE:+hook}calls";
    let text = format!("#!/bin/sh\necho $# $1 $3 >>{}/{file}\n", directory.display());
    write_program(&script, &text);
    left.setup.extra.push(format!("--hook={}", script.display()).into());
    left.configure(60, false, None);
    let configuration = left.setup.directory().join("keepalived.conf");
    let notify = format!("    state BACKUP\n    notify {}\n", script.display());
    let text = content(&configuration).replace("    state BACKUP\n", &notify);
    fs::write(&configuration, text).unwrap();
    right.configure(50, false, None);
    left.netns.run(|| left.rtnl.wait_running("ha0"));
    let _keepwatch = (left.watch(), right.watch());
    let files = Watch::new(&directory);
    let wait_succeeded = |states: &[&str]| {
        let line = |text, state: &&str| text + "4 INSTANCE " + *state + "\n";
        let lines = states.iter().fold(String::new(), line);
        for calls in ["hookcalls", "calls"] {
            let path = directory.join(calls);
            let called = || content(&path) == lines;
            files.until(format!("{lines}in {calls}"), || called().then_some(()));
        }
    };
    left.start_keepalived();
    wait_succeeded(&["BACKUP", "MASTER"]);
    right.start_keepalived();
    right.wait("BACKUP");
    left.netns.run(|| left.rtnl.down("ha0"));
    wait_succeeded(&["BACKUP", "MASTER", "FAULT"]);
    right.wait("MASTER");
    left.netns.run(|| left.rtnl.up("ha0"));
    wait_succeeded(&["BACKUP", "MASTER", "FAULT", "BACKUP"]);
    left.wait("BACKUP");
    left.assert_in_step();
    right.assert_in_step();
}

/// A killed keepalived leaves its addresses, so both nodes are active. One of them receives the other's claims, and the
/// next keepalived removes the addresses.
#[apply(trial)]
fn crash() {
    play(false, false, |left, right, left_keepwatch| {
        left.kill_keepalived();
        right.wait("MASTER");
        left_keepwatch.wait_log("split brain: ", 1);
        assert_eq!(left.setup.state(), "primary");
        left.agent.assert_last_state("primary");
        left.start_keepalived();
        left.wait("BACKUP");
        right.agent.assert_last_state("primary");
    });
}

/// Three agents for a router are Neutron's default. At a fail-over both backups of equal priority take the VIP, and one
/// gives it back at once. `FAIL_OVERS` is the number for each interval; by default the longest takes too long.
#[expect(clippy::print_stdout, reason = "a figure for docs/testing.md")]
#[apply(trial)]
fn fail_over_of_equal_priorities_is_no_split_brain() {
    let rounds = std::env::var("FAIL_OVERS").ok().and_then(|number| number.parse().ok());
    let contested: u64 = [("0.1", 0, 3), ("1", 0, 2), ("10", 0, 0), ("1", 99, 1)]
        .map(|(interval, further_vips, short)| {
            let many = if further_vips > 0 { Some(short) } else { rounds };
            fail_over(interval, further_vips, many.unwrap_or(short))
        })
        .iter()
        .sum();
    println!("fail-overs in which another station claimed the VIP: {contested}");
}

/// Fails over this often. Returns in how many of them another station claimed the VIP.
fn fail_over(interval: &'static str, further_vips: u8, rounds: u32) -> u64 {
    if rounds == 0 {
        return 0;
    }
    let network = Network::new();
    let nodes = [("left", 1), ("middle", 2), ("right", 3)].map(|(name, number)| {
        let mut node = Node::new(name, number, &network);
        (node.interval, node.further_vips) = (interval, further_vips);
        node.configure(50, false, None);
        node
    });
    let keepwatches = nodes.each_ref().map(Node::watch);
    nodes.iter().for_each(Node::start_keepalived);
    let (mut contested, mut claims) = (0, [0; 3]);
    for _ in 0..=rounds {
        let wires = nodes.each_ref().map(Node::wire);
        let is_probe = |frame: &&Frame| {
            frame.asks_for([169, 254, 0, 5].into()) && frame.bytes[28..32] == [0; 4]
        };
        let mut number = 0;
        // A node whose keepalived is about to give way has no time for two probes.
        look(format_args!("a single master at {interval} s that probes"), || {
            let count = |state: &str| nodes.iter().filter(|node| node.is(state)).count();
            number = nodes.iter().position(|node| node.is("MASTER")).unwrap_or(number);
            count("MASTER") == 1
                && count("BACKUP") == 2
                && wires[number].frames().iter().filter(is_probe).count() >= 2
        });
        let (master, keepwatch) = (&nodes[number], &keepwatches[number]);
        master.agent.wait_acknowledged("primary");
        let earlier = replace(&mut claims[number], keepwatch.counter("claims"));
        contested += u64::from(claims[number] > earlier);
        for node in &nodes {
            assert_split_brains_are_real(node, &nodes);
        }
        master.stop_keepalived();
        master.agent.wait_acknowledged("backup");
        master.start_keepalived();
    }
    contested
}

/// Asserts that two nodes had had the VIP for half a second at each split brain that a node's log names. On a busy machine
/// a keepalived with many addresses gives way late.
fn assert_split_brains_are_real(node: &Node, nodes: &[Node]) {
    node.setup.expect(&["split brain: "]);
    let log = node.setup.log();
    for line in log.lines().filter(|line| line.contains(": split brain: ")) {
        let named = seconds(line);
        let is_old = |node: &&Node| vip_since(node, named).is_some_and(|since| named - since > 0.5);
        assert!(nodes.iter().filter(is_old).count() >= 2, "{log}");
    }
}

/// Returns since when a node had the VIP at this second of the day, by its log.
fn vip_since(node: &Node, at: f64) -> Option<f64> {
    let log = node.setup.log();
    let changes = log.lines().filter(|line| line.contains(" 169.254.0.5/24 is "));
    let last = changes.take_while(|line| seconds(line) <= at).last();
    last.filter(|line| line.ends_with("address added")).map(seconds)
}

/// Returns the second of the day at which a line was logged.
fn seconds(line: &str) -> f64 {
    line[11..23].split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// A preempted node that is slow receives the other's claims before its own address is removed.
#[apply(trial)]
fn preemption_is_no_split_brain() {
    play(false, true, |left, right, _| {
        let right_keepwatch = right.setup.running();
        for round in 1..=3 {
            left.stop_keepalived();
            right.wait("MASTER");
            let received = right_keepwatch.counter("claims");
            left.start_keepalived();
            left.wait("BACKUP");
            right.signal_keepalived(Signal::SIGSTOP);
            right_keepwatch.wait_counter("claims", received + 1);
            right.signal_keepalived(Signal::SIGCONT);
            left.wait("MASTER");
            right.wait("BACKUP");
            assert_eq!(right_keepwatch.counter("transitions"), 1 + 2 * round);
        }
        for node in [left, right] {
            assert!(!node.setup.log().contains("split brain"), "{}", node.setup.log());
        }
    });
}

/// VRRP is lost but ARP arrives: both nodes log the begin and the end of a split brain.
#[apply(trial)]
fn lost_vrrp_packets() {
    play(false, false, |left, right, left_keepwatch| {
        let right_keepwatch = right.setup.running();
        left.network.set_multicast(false);
        right.wait("MASTER");
        for (keepwatch, other) in [(left_keepwatch, 2), (&right_keepwatch, 1)] {
            let line = format!("split brain: 02:00:00:00:00:0{other} claims 169.254.0.5 on ha0 ");
            keepwatch.wait_log(&line, 1);
        }
        left.network.set_multicast(true);
        right.wait("BACKUP");
        for keepwatch in [left_keepwatch, &right_keepwatch] {
            keepwatch.wait_log("split brain over: ", 1);
        }
        left.agent.assert_last_state("primary");
    });
}

/// A backup whose keepalived is dead would not take over. keepalived that runs, or is stopped and started, is no trouble.
#[apply(trial)]
fn dead_keepalived_is_a_trouble() {
    const GONE: &str = "keepalived does not run";
    let network = Network::new();
    let mut node = Node::new("left", 1, &network);
    let pid_file = node.setup.directory().join("keepalived.pid-vrrp");
    node.setup.extra.push(format!("--keepalived-pid-file={}", pid_file.display()).into());
    node.setup.extra.push("--debug".into());
    node.configure(60, false, None);
    node.start_keepalived();
    let keepwatch = node.watch();
    node.wait("MASTER");
    keepwatch.wait_log("KeepalivedChecked(Runs)", 1);
    node.stop_keepalived();
    keepwatch.wait_log("KeepalivedChecked(Gone)", 1);
    node.start_keepalived();
    node.wait("MASTER");
    keepwatch.wait_log("KeepalivedChecked(Runs)", 2);
    assert!(!node.setup.log().contains(GONE));
    node.kill_keepalived();
    keepwatch.wait_log(GONE, 1);
    assert!(keepwatch.status().contains(GONE));
    node.start_keepalived();
    keepwatch.wait("keepalived", || !keepwatch.status().contains(GONE));
}

/// With `use_vmac`, both nodes have the same MAC, and after a crash both have the address.
#[apply(trial)]
fn split_brain_with_virtual_macs() {
    play(true, false, |left, right, left_keepwatch| {
        assert!(!left.setup.log().contains("split brain"), "its own frames are no claims");
        left.kill_keepalived();
        right.wait("MASTER");
        for keepwatch in [left_keepwatch, &right.setup.running()] {
            keepwatch.wait_log("split brain: 00:00:5e:00:01:05 claims 169.254.0.5 on vrrp.5 ", 1);
        }
    });
}

/// Neutron adds a floating IP to the configuration of both nodes.
#[apply(trial)]
fn reload() {
    const FLOATING_IP: &str = "192.0.2.20/32";
    let announced = |frames: &[Frame]| {
        frames.iter().any(|frame| frame.is_arp() && frame.bytes[28..32] == [192, 0, 2, 20])
    };
    play(false, false, |left, right, _| {
        left.configure(60, false, Some(FLOATING_IP));
        right.configure(50, false, Some(FLOATING_IP));
        let capture = |node: &Node| node.netns.run(|| Capture::new("qg0-peer"));
        let outside = [left, right].map(capture);
        // Neutron makes keepalived reload for every new address.
        right.signal_keepalived(Signal::SIGHUP);
        left.signal_keepalived(Signal::SIGHUP);
        outside[0].wait("the floating IP", announced);
        left.wait("MASTER");
        right.wait("BACKUP");
        left.stop_keepalived();
        outside[1].wait("the floating IP", announced);
        right.wait("MASTER");
    });
}
