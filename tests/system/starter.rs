//! Whatever the starter has made of signals, and however early one comes.

#![expect(unsafe_code, reason = "what a starter does before it executes the program")]

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use lab::daemon::{Running, Setup, send};
use lab::files::Watch;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};

use crate::world::{World, setup};

/// Has the starter ignore the end of its children and block every signal, as some do by mistake.
pub fn careless(mut command: Command) -> Command {
    let make = || {
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        Ok(SigSet::all().thread_set_mask()?)
    };
    // SAFETY: nothing but system calls.
    unsafe { command.pre_exec(make) };
    command
}

#[apply(trial)]
fn signals_are_as_they_were_left() {
    let world = World::new();
    let output = careless(world.setup.command()).output().unwrap();
    let keepwatch = world.setup.adopt(&output);
    assert_eq!(signals(&keepwatch, "SigBlk"), HEEDED, "no other is blocked");
    assert_eq!(signals(&keepwatch, "SigIgn"), [Signal::SIGPIPE, Signal::SIGXFSZ]);
    keepwatch.counter("transitions");
    assert!(keepwatch.terminate().is_none() && !world.setup.pid_file().exists());
}

const HEEDED: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGTERM];

/// Those in a mask of `/proc/PID/status`.
fn signals(keepwatch: &Running<'_>, field: &str) -> Vec<Signal> {
    let mask = u128::from_str_radix(&keepwatch.proc_status(field), 16).unwrap();
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}

/// Starts it, lets a signal come before this system call, and then has it go on.
#[cfg(target_arch = "x86_64")]
fn interrupted(setup: &Setup, how: &str, call: libc::c_long, signal: Signal) -> Child {
    let mut command = setup.command();
    command.arg("--namespace=/proc/thread-self/ns/net").arg(how).stdout(Stdio::null());
    let stopped = lab::traced::spawn_up_to(&mut command, call);
    kill(stopped.pid(), signal).unwrap();
    stopped.go_on()
}

/// It is taken when there is somebody to take it.
#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn early_signal_waits() {
    for signal in HEEDED {
        let world = World::new();
        let mut child = interrupted(&world.setup, "--foreground", libc::SYS_setns, signal);
        if !matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
            world.agent.wait_acknowledged("backup");
            send(child.id(), Signal::SIGTERM);
        }
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{signal}");
        assert!(!world.setup.pid_file().exists());
    }
}

#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn early_signal_ends_what_is_no_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut child = interrupted(&setup(), "--check", libc::SYS_setns, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
    }
}

/// A daemon that cannot write its first state, and the process that waits for it.
fn start_that_lasts(setup: &Setup) -> Child {
    let none: Option<&str> = None;
    let size = Some("size=64k");
    mount(none, &setup.conf_dir, Some("tmpfs"), MsFlags::empty(), size).unwrap();
    let _ = fs::write(setup.conf_dir.join("ballast"), vec![0; 65536]);
    let files = Watch::new(setup.directory());
    let log = setup.directory().join("log");
    let mut command = setup.command();
    command.arg(format!("--log-file={}", log.display())).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    files.until("a daemon that tries", || {
        setup.log_in(&log).contains("state file not written").then_some(())
    });
    child
}

#[apply(trial)]
fn interrupted_start_leaves_no_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let setup = setup();
        let mut parent = start_that_lasts(&setup);
        let daemon = setup.running();
        send(parent.id(), signal);
        assert_eq!(parent.wait().unwrap().signal(), Some(signal as i32));
        daemon.wait_exit();
        assert!(!setup.pid_file().exists(), "it left in good order");
    }
}

#[apply(trial)]
fn hung_up_start_goes_on() {
    let setup = setup();
    let mut parent = start_that_lasts(&setup);
    let daemon = setup.running();
    send(parent.id(), Signal::SIGHUP);
    assert_eq!(parent.wait().unwrap().signal(), Some(Signal::SIGHUP as i32));
    fs::remove_file(setup.conf_dir.join("ballast")).unwrap();
    daemon.wait_state("backup");
}

#[apply(trial)]
fn log_as_large_as_may_be() {
    let world = World::new();
    fs::write(world.setup.log_file(), vec![b'\n'; 8192]).unwrap();
    let mut command = world.setup.command();
    let limit = || Ok(setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096)?);
    // SAFETY: nothing but a system call.
    unsafe { command.pre_exec(limit) };
    let _keepwatch = world.setup.adopt(&command.output().unwrap());
    world.tell(true);
    assert_eq!(world.setup.state(), "master");
    assert_eq!(fs::metadata(world.setup.log_file()).unwrap().len(), 8192);
}
