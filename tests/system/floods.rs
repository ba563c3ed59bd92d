//! Promise 12: a flood of frames costs a few wake-ups a second.

use std::time::{Duration, Instant};

use keepwatch::wire::ndisc;
use lab::capture::Capture;
use lab::files::look;

use crate::world::{World, setup};

/// Frames that the daemon reads in a second, while the flood goes on.
const FRAMES_A_SECOND: u64 = 16;

/// The kernel's filter does not verify checksums, so these frames reach the daemon.
#[apply(trial)]
fn frames_that_claim_nothing() {
    let world = World::with(setup().with("--monitor_cidr=fd00::5/64"));
    world.rtnl.add_address("ha0", "fd00::5/64");
    let keepwatch = world.setup.start();
    keepwatch.wait_state("master");
    keepwatch.status();
    let wire = Capture::new("ha0-peer");
    let right = ndisc::advertisement([2, 9, 9, 9, 9, 9], "fd00::5".parse().unwrap(), true);
    let mut wrong = right;
    wrong[56] ^= 1;
    keepwatch.wait_asleep();
    let (begin, wakes, mut sent) = (Instant::now(), keepwatch.wakes(), 0);
    while begin.elapsed() < Duration::from_secs(3) {
        wire.send(&wrong);
        sent += 1;
    }
    let (wakes, seconds) = (keepwatch.wakes() - wakes, begin.elapsed().as_secs() + 1);
    // The daemon's seconds do not begin with the test's, and each needs a timer, too. Sharing few processors with the
    // sender costs some more.
    let most = (FRAMES_A_SECOND + 2) * (seconds + 1) * 2;
    println!("{sent} frames, {wakes} wake-ups in {seconds} s");
    assert!(sent > 10 * most, "{sent} frames are no flood");
    assert!(wakes < most, "{wakes} wake-ups in {seconds} s");
    assert_eq!(keepwatch.counter("claims"), 0);
    // A second after the claim it is logged, if the daemon has not ended by then.
    world.setup.expect(&["split brain: 02:09:09:09:09:09 claims fd00::5 on ha0"]);
    look("a claim", || {
        wire.send(&right);
        keepwatch.counter("claims") > 0
    });
}
