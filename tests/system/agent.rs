//! Promises 5, 6 and 19: the newest state is delivered until the agent has answered 200, in any form of reply.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use lab::NEWEST_REPLY;
use lab::agent::{Arrival, Behaviour, FullBacklog, read_request};
use lab::files::unread;
use lab::trial::table;
use libtest_mimic::Trial;
use nix::sys::socket::SockType;

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

/// Asserts that every flip is delivered once, and that the last delivery is the current state.
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
    for Arrival { line, router, .. } in &arrivals {
        assert_eq!((&**line, router), ("GET / HTTP/1.1", &world.setup.router));
    }
}

/// An agent may read only once. In the kernel the request takes as much memory as one write of it.
#[apply(trial)]
fn request_is_one_write() {
    let mut world = World::new();
    world.agent.stop(true);
    world.setup.expect(&["agent not notified: connection closed"]);
    let path = world.setup.state_path.join("keepalived-state-change");
    let listener = UnixListener::bind(path).unwrap();
    let keepwatch = world.setup.start();
    // The request is sent before the status is logged.
    keepwatch.status();
    let size = unread(keepwatch.socket(SockType::Stream));
    let request = read_request(&mut listener.accept().unwrap().0);
    let (mut one_write, _other) = UnixStream::pair().unwrap();
    one_write.write_all(request.as_bytes()).unwrap();
    assert_eq!(size, unread(one_write), "the memory of the request, and of one write");
}

/// The daemon uses one socket until it is connected, also to another agent.
#[apply(trial)]
fn full_backlog_gets_room() {
    let mut world = World::new();
    world.agent.stop(true);
    let full = FullBacklog::new(&world.setup.state_path);
    let keepwatch = world.setup.start();
    keepwatch.wait_log("agent not notified: backlog full", 1);
    let mut connection = full.accept();
    assert!(read_request(&mut connection).contains("X-Neutron-State: backup"));
    connection.write_all(NEWEST_REPLY).unwrap();
    keepwatch.wait_log("agent notified after ", 1);
    drop((full, connection));
    let full = FullBacklog::new(&world.setup.state_path);
    world.set_vip(true);
    keepwatch.wait_log("agent not notified: backlog full", 1);
    world.agent.listen();
    world.agent.wait_acknowledged("master");
    keepwatch.wait_log("agent notified after ", 1);
    drop(full);
}
