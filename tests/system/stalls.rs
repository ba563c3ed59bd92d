//! Promise 6 when the daemon itself was held up: it heeds what came meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::sleep;
use std::time::Duration;

use lab::NEWEST_REPLY;
use lab::daemon::Running;
use lab::files::look;
use nix::sys::signal::Signal;

use crate::world::World;

/// Longer than the reply is waited for.
const TOO_LONG: Duration = Duration::from_secs(6);

/// And waits until it is stopped, as `/proc/PID/stat` has it.
fn stop(keepwatch: &Running<'_>) {
    keepwatch.signal(Signal::SIGSTOP);
    look("it to stop", || keepwatch.proc_status("State").starts_with('T'));
}

#[apply(trial)]
fn stopped_while_the_agent_answers() {
    let mut world = World::new();
    world.agent.stop(true);
    let socket = world.setup.state_path.join("keepalived-state-change");
    let listener = UnixListener::bind(socket).unwrap();
    let keepwatch = world.setup.start();
    let (mut stream, _) = listener.accept().unwrap();
    let read = stream.read(&mut [0; 4096]).unwrap();
    assert!(read > 0);
    stop(&keepwatch);
    stream.write_all(NEWEST_REPLY).unwrap();
    drop(stream);
    sleep(TOO_LONG);
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_log("Notified agent router", 1);
    let status = keepwatch.status();
    assert!(
        status.contains("notifications=1") && status.contains("notification_failures=0"),
        "{status}"
    );
    assert!(!world.setup.log().contains("reply timed out"), "{}", world.setup.log());
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "said again");
}

/// More events than are read in one go are in the queue, and the last of them matters.
#[apply(trial)]
fn stopped_and_asked_to_leave() {
    let world = World::new();
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    stop(&keepwatch);
    for n in 0..200 {
        world.rtnl.add_address("ha0-peer", &format!("10.0.{n}.1/32"));
    }
    world.set_vip(true);
    keepwatch.signal(Signal::SIGTERM);
    keepwatch.signal(Signal::SIGCONT);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
    assert_eq!(world.setup.state(), "master", "{}", world.setup.log());
    world.agent.assert_last_word("master");
}
