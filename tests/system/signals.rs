//! Promises 14 and 15: signals, the pid file, the log file.

use std::fs;
#[cfg(not(feature = "defmt"))]
use std::os::unix::fs::MetadataExt;
#[cfg(not(feature = "defmt"))]
use std::process::Stdio;

use lab::agent::Behaviour;
use lab::files::content;
#[cfg(not(feature = "defmt"))]
use lab::files::read_line;
use nix::sys::signal::Signal;

use crate::world::World;

#[apply(trial)]
fn exits_on_sigterm_and_sigint() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let world = World::new();
        world.set_vip(true);
        let keepwatch = world.setup.start();
        world.agent.wait_acknowledged("master");
        assert_eq!(content(&world.setup.pid_file()), keepwatch.pid().to_string());
        keepwatch.signal(signal);
        assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
        assert!(!world.setup.pid_file().exists());
        assert_eq!(world.setup.state(), "master", "the state file stays as it is");
        assert!(world.setup.log().contains(&format!("exiting on {signal}")));
    }
}

/// Nobody repeats the request after it.
#[apply(trial)]
fn exit_names_the_state_that_the_agent_lacks() {
    let world = World::new();
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    world.agent.behave(Behaviour::Hang);
    world.set_vip(true);
    keepwatch.wait_log("Wrote router", 2);
    // On a busy machine five seconds may pass before the signal.
    world.setup.expect(&["agent not notified: reply timed out after 5 s"]);
    keepwatch.signal(Signal::SIGTERM);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(0));
    let log = world.setup.log();
    assert!(log.contains("agent not notified of master before the exit\n"), "{log}");
}

#[apply(trial)]
fn status() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("master");
    keepwatch.wait_log("Notified agent router", 1);
    let status = keepwatch.status();
    let index = world.rtnl.ifindex("ha0");
    for line in [
        &format!("state=master undelivered=none hook_pending=none ifindex={index} "),
        "transitions=1 state_file_writes=1 state_file_write_failures=0\nnotifications=1 ",
        "netlink_malformed=0 netlink_foreign=0 dumps=4\ndump_failures=0 ",
    ] {
        assert!(status.contains(line), "{status}");
    }
    assert!(keepwatch.counter("events") >= 4);
}

/// SIGUSR2 only reopens a rotated log. While that fails, the lines also go to standard error, which may be the journal.
#[cfg(not(feature = "defmt"))]
#[apply(trial)]
fn rotated_log() {
    let world = World::new();
    let log = world.setup.log_file();
    let mut command = world.setup.command();
    let mut daemon = command.arg("--foreground").stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = daemon.stderr.take().unwrap();
    world.agent.wait_acknowledged("backup");
    let keepwatch = world.setup.running();
    keepwatch.wait_log("Notified agent router", 1);
    let written = fs::metadata(world.setup.state_file()).unwrap().ino();
    fs::rename(&log, log.with_extension("1")).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    keepwatch.wait("a new log", || log.exists());
    keepwatch.signal(Signal::SIGUSR1);
    keepwatch.wait_log("status: state=backup", 1);
    assert!(!world.setup.log().contains("Notified"), "{}", world.setup.log());
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    let line = read_line(&mut stderr);
    assert!(
        line.contains("log file not reopened: Is a directory (EISDIR); writing to the old one"),
        "{line}"
    );
    assert_eq!(fs::metadata(world.setup.state_file()).unwrap().ino(), written);
    assert_eq!(world.agent.arrivals().len(), 1);
    fs::remove_dir(&log).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    keepwatch.wait("another log", || log.exists());
    keepwatch.terminate();
    assert!(daemon.wait().unwrap().success());
    assert!(world.setup.log().contains("exiting on SIGTERM"));
    assert_eq!(read_line(stderr), "", "the file has the lines again");
}

#[apply(trial)]
fn stale_pid_file() {
    let world = World::new();
    fs::write(world.setup.pid_file(), "4194303 and more").unwrap();
    let keepwatch = world.setup.daemonize();
    assert_eq!(content(&world.setup.pid_file()), keepwatch.pid().to_string());
    keepwatch.signal(Signal::SIGKILL);
    keepwatch.wait_exit();
    let keepwatch = world.setup.daemonize();
    assert_eq!(content(&world.setup.pid_file()), keepwatch.pid().to_string());
}

/// Neutron's agent removes the pid file after SIGTERM, and may start a successor before the predecessor has exited. A daemon
/// without a signal notices that at the next check of the agent's socket.
#[apply(trial)]
fn pid_file_of_a_successor() {
    let world = World::new();
    let old = world.setup.daemonize();
    fs::remove_file(world.setup.pid_file()).unwrap();
    let new = world.setup.daemonize();
    let line = format!(
        " ERROR keepwatch [-] {}: pid file was removed or replaced; exiting\n",
        world.setup.router
    );
    old.wait_log(&line, 1);
    old.wait_exit();
    assert_eq!(content(&world.setup.pid_file()), new.pid().to_string());
}
