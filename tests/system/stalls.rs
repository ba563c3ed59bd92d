//! Promises 6 and 14 for a daemon that was stopped: it handles all that arrived meanwhile, and ends in order.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::sleep;
use std::time::Duration;

use lab::NEWEST_REPLY;
use lab::daemon::{Running, send};
use lab::files::look;
use nix::sys::signal::Signal;

use crate::scripted::{helper, hooked};
use crate::world::{World, setup};

/// Longer than the reply's timeout.
const TOO_LONG: Duration = Duration::from_secs(6);

/// Stops the daemon, and waits until it has stopped.
pub fn stop(keepwatch: &Running<'_>) {
    keepwatch.signal(Signal::SIGSTOP);
    wait_for_state(keepwatch, 'T');
}

/// Waits until the daemon is in this state of `proc_pid_status(5)`.
fn wait_for_state(keepwatch: &Running<'_>, state: char) {
    look(format!("state {state}"), || keepwatch.proc_status("State").starts_with(state));
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
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "notified twice");
}

/// The queue has more events than one batch, and the last of them changes the state.
#[apply(trial)]
fn sigterm_while_stopped() {
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
    world.agent.assert_last_state("master");
}

/// The exiting daemon waits for its helper. The kernel resumes this wait by a system call of its own.
#[apply(trial)]
fn stopped_during_the_exit() {
    let hooked = hooked(setup());
    hooked.when("BACKUP", "exec sleep 1000");
    let setup = &hooked.world.setup;
    setup.expect(&["hook still running; killed"]);
    let keepwatch = setup.start();
    hooked.wait_calls(&["+BACKUP"]);
    let helper = helper(&keepwatch);
    send(helper, Signal::SIGSTOP);
    keepwatch.signal(Signal::SIGTERM);
    keepwatch.wait_log("exiting on SIGTERM", 1);
    wait_for_state(&keepwatch, 'S');
    stop(&keepwatch);
    keepwatch.signal(Signal::SIGCONT);
    send(helper, Signal::SIGCONT);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
    assert!(!setup.pid_file().exists());
}
