//! Promises 5, 6 and 19: the newest state is delivered until the agent has answered 200, in any form of reply.

use lab::NEWEST_REPLY;
use lab::agent::{Arrival, Behaviour};
use lab::trial::table;
use libtest_mimic::Trial;

use crate::world::{World, word};

#[apply(trial)]
fn replies() -> Vec<Trial> {
    let replies = [
        ("newest_neutron", Behaviour::newest()),
        ("one_byte_at_a_time", Behaviour::Dribble(NEWEST_REPLY)),
        // A 200 counts as soon as it arrives, without the rest of the reply.
        ("reply_that_never_ends", Behaviour::ReplyAndHang(b"HTTP/1.1 200 OK\r\n")),
    ];
    table(module_path!(), replies, assert_understood).collect()
}

/// Asserts that every flip is delivered once, in one write, and that the last delivery is the current state.
fn assert_understood(behaviour: Behaviour) {
    let world = World::new();
    world.agent.behave(behaviour);
    let keepwatch = world.setup.start();
    let mut present = false;
    for _ in 0..20 {
        world.agent.wait_acknowledged(word(present));
        present = !present;
        world.set_vip(present);
    }
    world.agent.wait_acknowledged(word(present));
    keepwatch.wait_log("Notified agent router", 21);
    assert_eq!(keepwatch.counter("notification_failures"), 0);
    keepwatch.terminate();
    world.agent.assert_last_state(word(present));
    let arrivals = world.agent.arrivals();
    assert_eq!(arrivals.len(), 21);
    for Arrival { line, router, reads, .. } in &arrivals {
        let expected = ("GET / HTTP/1.1", world.setup.router.as_str(), 1);
        assert_eq!((line.as_str(), router.as_str(), *reads), expected, "line, router and reads");
    }
}
