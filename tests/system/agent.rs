//! Promises 5, 6 and 19: the newest state is delivered until the agent has said 200, whatever its
//! manners.

use lab::NEWEST_REPLY;
use lab::agent::{Agent, Manners};
use lab::trial::table;
use libtest_mimic::Trial;

use crate::world::{World, setup, word};

#[apply(trial)]
fn replies() -> Vec<Trial> {
    const EARLY: &str = "connection closed before a complete reply";
    let counts = [
        ("newest_neutron", Manners::newest()),
        ("one_byte_at_a_time", Manners::Dribble(NEWEST_REPLY)),
        // A 200 counts when it is there; the rest of the reply need not come.
        ("reply_that_never_ends", Manners::ReplyAndHang(b"HTTP/1.1 200 OK\r\n")),
    ];
    let error = Manners::Reply(vec![b"HTTP/1.1 500 Internal Server Error\r\n\r\n"]);
    let does_not_count = [
        ("status_500", (error, "reply has status 500")),
        ("closes_early", (Manners::CloseEarly, EARLY)),
        ("closes_without_reading", (Manners::CloseUnread, EARLY)),
        ("hangs", (Manners::Hang, "reply timed out")),
        ("junk", (Manners::Reply(vec![b"\x00\xff\n"]), "reply is not HTTP")),
        ("babbles", (Manners::Babble, "reply is not HTTP")),
    ];
    let does_not_count = table(module_path!(), does_not_count, is_told_until_it_understands);
    table(module_path!(), counts, is_understood).chain(does_not_count).collect()
}

#[apply(trial)]
fn request_is_one_write() {
    let world = World::new();
    let _keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    let [arrival] = &world.agent.arrivals()[..] else { panic!("one request") };
    assert_eq!((arrival.reads, &arrival.router), (1, &world.setup.router));
}

/// An agent whose replies count: every flip is told, the last is the truth, and that is that.
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
    assert_eq!(world.agent.arrivals().len(), 21);
}

/// An agent whose replies do not count is told again and again, of the newest state; and of nothing
/// more once it has come to its senses.
fn is_told_until_it_understands((manners, log): (Manners, &str)) {
    let world = World::new();
    world.agent.behave(manners);
    let keepwatch = world.setup.start();
    keepwatch.wait_log(&format!("agent not notified: {log}; retrying"), 1);
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.agent.wait("the newer state", |arrivals| {
        arrivals.last().is_some_and(|arrival| arrival.state != "backup")
    });
    world.agent.behave(Manners::newest());
    world.agent.wait_acknowledged("master");
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_log("agent notified after ", 1);
    keepwatch.terminate();
    world.agent.assert_last_word("master");
    let log = world.setup.log();
    assert_eq!(log.matches("agent not notified").count(), 1, "once a minute is enough:\n{log}");
}

#[apply(trial)]
fn absent_then_started() {
    let world = World::new();
    let setup = setup();
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified: no socket (ENOENT); retrying", 1);
    world.set_vip(true);
    keepwatch.wait_state("master");
    let agent = Agent::start(&setup.state_path);
    agent.wait_acknowledged("master");
    keepwatch.terminate();
    assert_eq!(agent.arrivals().len(), 1, "the older state is not told any more");
}
