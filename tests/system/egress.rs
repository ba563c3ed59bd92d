//! Promise 11: an interface that takes no frames holds up no other.

use lab::capture::{Capture, Frame};
use lab::daemon::Running;
use lab::egress::Queue;
use libtest_mimic::Trial;

use crate::announce::{MAC, add_lan, announcements, arp_rounds, bytes, is_announcement, world};
use crate::world::World;

pub fn trials() -> Vec<Trial> {
    lab::trials![
        queue_that_drops,
        queue_that_does_not_move,
        many_queues_that_do_not_move,
        queue_that_moves_again
    ]
}

/// Adds another interface with this queue, and so many addresses on it.
fn add_bad(world: &World, name: &str, queue: Queue, addresses: u32) {
    add_lan(&world.rtnl, name, [2, 0, 0, 0, 1, 1]);
    world.rtnl.set_queue(name, queue);
    for n in 0..addresses {
        world.rtnl.add_address(name, &format!("10.1.{}.{}/32", n / 256, n % 256));
    }
}

/// Everything on `lan0` is announced, and then nothing wakes the daemon any more.
fn assert_announced(world: &World, capture: &Capture, keepwatch: &Running<'_>) {
    let before = capture.frames().iter().filter(|frame| is_announcement(frame)).count();
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    let frames = announcements(capture, keepwatch, before + 6);
    assert_eq!(bytes(&frames[before..]), arp_rounds(MAC, 3));
    world.rtnl.delete_address("lan0", "10.0.0.1/24");
}

/// A filter or a full queue (`ENOBUFS`).
fn queue_that_drops() {
    let (world, capture) = world(&[]);
    let keepwatch = world.setup.start();
    add_bad(&world, "bad0", Queue::Full, 20);
    assert_announced(&world, &capture, &keepwatch);
    assert_eq!(keepwatch.counter("announcement_failures"), 20 * 6);
    assert_eq!(keepwatch.counter("announcements"), 6);
    keepwatch.wait_log("announcement not sent on bad0: transmit queue full or frame dropped", 1);
    let switches: u64 = keepwatch.proc_status("voluntary_ctxt_switches").parse().unwrap();
    assert!(switches < 3 * 20 * 6, "{switches} times asleep");
}

/// It has more addresses than there is room for in the send buffer.
fn queue_that_does_not_move() {
    let (world, capture) = world(&[]);
    let keepwatch = world.setup.start();
    add_bad(&world, "bad0", Queue::Stuck, 500);
    for _ in 0..3 {
        assert_announced(&world, &capture, &keepwatch);
    }
    let failures = keepwatch.counter("announcement_failures");
    assert!((2900..3000).contains(&failures), "{failures} of 3,000 frames failed");
    keepwatch.wait_log("announcement not sent on bad0: transmit queue stalled", 1);
}

/// Each takes but a few frames' room.
fn many_queues_that_do_not_move() {
    let (world, capture) = world(&["--garp_master_repeat=3"]);
    let keepwatch = world.setup.start();
    for n in 0..6 {
        add_bad(&world, &format!("bad{n}"), Queue::Stuck, 50);
    }
    assert_announced(&world, &capture, &keepwatch);
    assert!(!world.setup.log().contains("send buffer full"), "{}", world.setup.log());
}

fn queue_that_moves_again() {
    let (world, capture) = world(&[]);
    let keepwatch = world.setup.start();
    add_bad(&world, "bad0", Queue::Stuck, 100);
    keepwatch.wait_log("announcement not sent on bad0", 1);
    keepwatch.wait_asleep();
    assert_announced(&world, &capture, &keepwatch);
    // What it held is dropped with the queue.
    world.rtnl.set_queue("bad0", Queue::None);
    let there = Capture::new("bad0-peer");
    for n in 0..10 {
        world.rtnl.add_address("bad0", &format!("10.2.0.{n}/32"));
    }
    let new = |frame: &&Frame| frame.is_arp() && frame.bytes[28..30] == [10, 2];
    there.wait("all rounds", |frames| frames.iter().filter(new).count() == 60);
}
