//! Promises 5, 6 and 19: the newest state is delivered until the agent has said 200, whatever its manners.

use lab::NEWEST_REPLY;
use lab::agent::{Arrival, Manners};
use lab::trial::table;
use libtest_mimic::Trial;

use crate::world::{World, word};

#[apply(trial)]
fn replies() -> Vec<Trial> {
    let counts = [
        ("newest_neutron", Manners::newest()),
        ("one_byte_at_a_time", Manners::Dribble(NEWEST_REPLY)),
        // A 200 counts when it is there; the rest of the reply need not come.
        ("reply_that_never_ends", Manners::ReplyAndHang(b"HTTP/1.1 200 OK\r\n")),
    ];
    table(module_path!(), counts, is_understood).collect()
}

/// An agent whose replies count: every flip is told in one write, the last is the truth, and that is that.
fn is_understood(manners: Manners) {
    let world = World::new();
    world.agent.behave(manners);
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
    world.agent.assert_last_word(word(present));
    let arrivals = world.agent.arrivals();
    assert_eq!(arrivals.len(), 21);
    let is_one_write =
        |arrival: &Arrival| arrival.reads == 1 && arrival.router == world.setup.router;
    assert!(arrivals.iter().all(is_one_write), "{arrivals:?}");
}
