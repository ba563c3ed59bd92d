//! Promise 12: a flood of claims of the VIP costs a few wake-ups a second and a few lines a minute.

use std::time::{Duration, Instant};

use keepwatch::wire::arp::{self, Operation};
use keepwatch::wire::ndisc;
use lab::capture::Capture;
use lab::daemon::Running;
use lab::files::look;

use crate::world::{World, setup};

/// Frames that are read in a second; sending them goes on meanwhile.
const FRAMES_A_SECOND: u64 = 16;

/// Sends frames for so long, as fast as the wire takes them, and returns how many.
fn flood(wire: &Capture, duration: Duration, mut frame: impl FnMut(u32) -> Vec<u8>) -> u32 {
    let end = Instant::now() + duration;
    let numbers = 0_u32..;
    let sent = numbers.take_while(|_| Instant::now() < end);
    sent.map(|n| wire.send(&frame(n))).count().try_into().unwrap()
}

/// Has the wire flooded with what is not heeded, and looks what that costs.
fn survives(keepwatch: &Running<'_>, wire: &Capture, frame: impl FnMut(u32) -> Vec<u8>) {
    keepwatch.wait_asleep();
    let (begin, wakes) = (Instant::now(), keepwatch.wakes());
    let sent = flood(wire, Duration::from_secs(3), frame);
    let (wakes, seconds) = (keepwatch.wakes() - wakes, begin.elapsed().as_secs() + 1);
    // A second may begin amid the frames of another, and for each there is a timer. That the wire is
    // shared with the sender on a few processors takes some more.
    let most = (FRAMES_A_SECOND + 2) * (seconds + 1) * 2;
    println!("{sent} frames, {wakes} wake-ups in {seconds} s");
    assert!(u64::from(sent) > 10 * most, "that is no flood");
    assert!(wakes < most, "{wakes} wake-ups in {seconds} s");
    assert_eq!(keepwatch.counter("claims"), 0);
}

fn hears(keepwatch: &Running<'_>, wire: &Capture, claim: &[u8]) {
    look("a claim", || {
        wire.send(claim);
        keepwatch.counter("claims") > 0
    });
}

/// Of a station of its own.
fn claim(number: u32) -> Vec<u8> {
    let mut mac = [2, 1, 0, 0, 0, 0];
    mac[2..].copy_from_slice(&number.to_be_bytes());
    arp::announcement(Operation::Request, mac, "169.254.0.5".parse().unwrap()).into()
}

/// No filter of the kernel looks at a checksum.
#[apply(trial)]
fn frames_that_claim_nothing() {
    let world = World::with(setup().with("--monitor_cidr=fd00::5/64"));
    world.rtnl.add_address("ha0", "fd00::5/64");
    let keepwatch = world.setup.start();
    keepwatch.wait_state("master");
    keepwatch.status();
    let wire = Capture::new("ha0-peer");
    let mut advertisement =
        ndisc::advertisement([2, 9, 9, 9, 9, 9], "fd00::5".parse().unwrap(), true);
    let right = advertisement;
    advertisement[56] ^= 1;
    survives(&keepwatch, &wire, |_| advertisement.into());
    // And it hears again.
    hears(&keepwatch, &wire, &right);
}

/// The socket still hears, but nobody heeds it.
#[apply(trial)]
fn while_backup() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    keepwatch.wait_state("master");
    world.set_vip(false);
    keepwatch.wait_state("backup");
    world.agent.wait_acknowledged("backup");
    keepwatch.status();
    let wire = Capture::new("ha0-peer");
    survives(&keepwatch, &wire, claim);
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    hears(&keepwatch, &wire, &claim(1));
}
