//! Random changes of links and addresses in the real kernel. After each, the daemon shows what `ip` shows.
//!
//! `CHANGES=NUMBER` makes more of them, `SEED=NUMBER` repeats those of a failure.

use std::env;
use std::process::Command;

use fastrand::Rng;
use lab::files::look;
use lab::received::Late;
use nix::sys::signal::Signal;

use crate::metrics::world_with;
use crate::world::{NO_INTERFACE, add_interface, setup, word};

const LINKS: [&str; 4] = ["ha0", "lan0", "away", "lo"];

/// Returns whether the VIP is on `ha0`, and whether it is only where nobody expects it.
fn truth(vip: &str) -> (bool, bool) {
    let show = |what| {
        let output = Command::new("ip").args(["-o", what, "show"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (address, prefix_len) = vip.split_once('/').unwrap();
    let (links, addresses) = (show("link"), show("addr"));
    let places: Vec<_> = (addresses.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words[3].split('/').next() == Some(address))
        // An address with a peer has the peer's prefix.
        .map(|words| {
            (words[1], words[3..6].iter().find_map(|word| word.split_once('/')).unwrap().1)
        })
        .collect();
    let is_active = places.contains(&("ha0", prefix_len));
    let is_used = |(name, _): &(&str, _)| {
        let is_it = |line: &&str| line.split([' ', ':', '@']).nth(2) == Some(name);
        let link = links.lines().find(is_it).unwrap();
        link.contains(" state UP ") && !link.contains("LOOPBACK")
    };
    (is_active, !is_active && places.iter().any(is_used))
}

#[apply(trial)]
fn ipv4() {
    live("192.0.2.10/24", ["192.0.2.10/24", "192.0.2.10/32", "192.0.2.10/25", "192.0.2.11/24"]);
}

#[apply(trial)]
fn ipv6() {
    live("fd00::10/64", ["fd00::10/64", "fd00::10/128", "fd00::10/65", "fd00::11/64"]);
}

fn live(vip: &str, addresses: [&str; 4]) {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let (world, metrics) = world_with(setup().with(format!("--monitor_cidr={vip}")));
    add_interface(&world.rtnl, "lan0");
    let keepwatch = world.setup.start();
    world.setup.expect(&[NO_INTERFACE, "; expected ", "the interface is down", "has no carrier"]);
    // A change between two calls of the daemon.
    world.setup.expect(&["dump of ", "announcement not sent on "]);
    let (mut random, mut changes) = (Rng::with_seed(seed), vec![]);
    for _ in 0..number("CHANGES").unwrap_or(100) {
        // Some come together, before the daemon sees the first.
        let together = if random.u8(..4) == 0 { random.u8(2..12) } else { 1 };
        keepwatch.signal(Signal::SIGSTOP);
        for _ in 0..together {
            let change = change(&mut random, vip, addresses);
            // What is not possible changes nothing.
            Command::new("ip").args(change.split(' ')).output().unwrap();
            changes.push(change);
        }
        keepwatch.signal(Signal::SIGCONT);
        let what = || {
            format!("{:?} with SEED={seed} after {changes:#?}: {}", truth(vip), world.setup.log())
        };
        // The kernel sets some flags up to a second later.
        look(Late(what), || {
            let shown = ["active", "misplaced_address"].map(|name| metrics.value(name) == Some(1));
            let (is_active, is_misplaced) = truth(vip);
            world.setup.state() == word(is_active) && shown == [is_active, is_misplaced]
        });
    }
    // The agent may have acknowledged an earlier one.
    keepwatch.wait_asleep();
    world.agent.assert_last_state(word(truth(vip).0));
}

fn change(random: &mut Rng, vip: &str, addresses: [&str; 4]) -> String {
    let mut one_of = |words: &[&'static str]| words[random.usize(..words.len())];
    let (link, other) = (one_of(&LINKS), one_of(&LINKS));
    let (add, link_change) = (one_of(&["add", "del"]), one_of(&["up", "up", "down"]));
    let recreated =
        one_of(&["add away type veth peer name away-peer", "set away-peer up", "del away"]);
    let address = addresses[random.usize(..4)];
    match random.u8(..16) {
        0..9 => format!("addr {add} {address} dev {link} nodad"),
        9 => format!("addr add {} peer {address} dev {link} nodad", &vip[..vip.find('/').unwrap()]),
        10 => format!("addr flush dev {link}"),
        11..13 => format!("link set {link} {link_change}"),
        13..15 => format!("link set {link} name {other}"),
        _ => format!("link {recreated}"),
    }
}
