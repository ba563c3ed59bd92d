//! Promises 5, 6 and 19: the newest state is delivered until the agent has said 200, whatever its
//! manners.

use std::fs;
use std::os::unix::net::UnixListener;

use lab::NEWEST_REPLY;
use lab::agent::{Agent, FullBacklog, Manners};
use libtest_mimic::Trial;

use crate::world::{World, setup, word};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        request_is_one_write,
        newest_neutron,
        older_neutron,
        one_byte_at_a_time,
        reply_that_never_ends,
        status_500,
        closes_early,
        closes_without_reading,
        hangs,
        junk,
        babbles,
        absent_then_started,
        nobody_listens,
        full_backlog,
        no_socket_but_a_file,
        killed_and_restarted_while_the_state_flips,
    ]
}

fn request_is_one_write() {
    let world = World::new();
    let _keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    let arrivals = world.agent.arrivals();
    assert_eq!(arrivals[0].reads, 1);
    let router = &world.setup.router;
    assert_eq!(
        arrivals[0].text,
        format!(
            "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Neutron-Router-Id: {router}\r\n\
             X-Neutron-State: backup\r\nConnection: close\r\n\r\n"
        )
    );
}

/// An agent whose replies count: every flip is told, the last is the truth, and that is that.
fn is_understood(manners: &Manners) {
    let world = World::new();
    world.agent.behave(manners.clone());
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

fn newest_neutron() {
    is_understood(&Manners::newest());
}

fn older_neutron() {
    is_understood(&Manners::eventlet());
}

fn one_byte_at_a_time() {
    is_understood(&Manners::Dribble(NEWEST_REPLY));
}

/// A 200 counts when it is there; the rest of the reply need not come.
fn reply_that_never_ends() {
    is_understood(&Manners::ReplyAndHang(b"HTTP/1.1 200 OK\r\n"));
}

/// An agent whose replies do not count is told again and again, of the newest state; and of nothing
/// more once it has come to its senses.
fn is_told_until_it_understands(manners: Manners, log: &str) {
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

fn status_500() {
    let reply = Manners::Reply(vec![b"HTTP/1.1 500 Internal Server Error\r\n\r\n"]);
    is_told_until_it_understands(reply, "reply has status 500");
}

fn closes_early() {
    is_told_until_it_understands(Manners::CloseEarly, "connection closed before a complete reply");
}

fn closes_without_reading() {
    is_told_until_it_understands(Manners::CloseUnread, "connection closed before a complete reply");
}

fn hangs() {
    is_told_until_it_understands(Manners::Hang, "reply timed out");
}

fn junk() {
    is_told_until_it_understands(Manners::Reply(vec![b"\x00\xff\n"]), "reply is not HTTP");
}

fn babbles() {
    is_told_until_it_understands(Manners::Babble, "reply is not HTTP");
}

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

fn nobody_listens() {
    let setup = setup();
    drop(UnixListener::bind(setup.state_path.join("keepalived-state-change")).unwrap());
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified: connection refused (ECONNREFUSED); retrying", 1);
    Agent::start(&setup.state_path).wait_acknowledged("backup");
}

fn full_backlog() {
    let setup = setup();
    let full = FullBacklog::new(&setup.state_path);
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified: backlog full (EAGAIN); retrying", 1);
    drop(full);
    Agent::start(&setup.state_path).wait_acknowledged("backup");
}

fn no_socket_but_a_file() {
    let setup = setup();
    fs::write(setup.state_path.join("keepalived-state-change"), "").unwrap();
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified: connection refused (ECONNREFUSED); retrying", 1);
    Agent::start(&setup.state_path).wait_acknowledged("backup");
}

fn killed_and_restarted_while_the_state_flips() {
    let mut world = World::new();
    let keepwatch = world.setup.start();
    let mut present = false;
    for round in 0..10 {
        world.agent.wait_acknowledged(word(present));
        world.agent.stop(round % 2 == 0);
        for _ in 0..3 {
            present = !present;
            world.set_vip(present);
        }
        keepwatch.wait_state(word(present));
        world.agent = Agent::start(&world.setup.state_path);
    }
    world.agent.wait_acknowledged(word(present));
    keepwatch.terminate();
    world.agent.assert_last_word(word(present));
}
