//! Whatever the starter has made of signals, and however early one comes.

#![expect(unsafe_code, reason = "what a starter does before it executes the program")]

use std::fs::{self, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::daemon::{Running, Setup};
use lab::files::{Watch, content, read_line};
use libtest_mimic::Trial;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        signals_are_as_they_were_left,
        early_signal_waits,
        early_signal_ends_what_is_no_daemon,
        interrupted_start_leaves_no_daemon,
        hung_up_start_goes_on,
        log_as_large_as_may_be,
    ];
    #[cfg(target_arch = "x86_64")]
    trials.extend(lab::trials![blocked_violation]);
    trials
}

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

/// A FIFO for a namespace: it can be opened only when somebody opens the other end.
struct Gate(PathBuf);

impl Gate {
    fn new(setup: &Setup) -> Self {
        let path = setup.directory().join("gate");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        Self(path)
    }

    fn start(&self, setup: &Setup, how: &str) -> Child {
        let mut command = setup.command();
        command.arg(format!("--namespace={}", self.0.display())).arg(how);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let call = PathBuf::from(format!("/proc/{}/wchan", child.id()));
        let deadline = Instant::now() + lab::PATIENCE;
        while !content(&call).contains("wait_for_partner") {
            assert!(Instant::now() < deadline, "in {}", content(&call));
            // Nothing tells of it, so it has to be looked at now and then.
            thread::sleep(Duration::from_millis(1));
        }
        child
    }

    fn open(&self) {
        OpenOptions::new().write(true).open(&self.0).unwrap();
    }
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

/// It is taken when there is somebody to take it; here the start fails for another reason.
fn early_signal_waits() {
    for signal in HEEDED {
        let setup = setup();
        let gate = Gate::new(&setup);
        let mut child = gate.start(&setup, "--foreground");
        send(&child, signal);
        gate.open();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(1), None), "{signal}");
        let error = read_line(child.stderr.take().unwrap());
        assert!(error.contains("/gate: Invalid argument (EINVAL)"), "{error}");
    }
    let world = World::new();
    let keepwatch = world.setup.spawn();
    while signals(&keepwatch, "SigBlk").len() < HEEDED.len() {
        thread::yield_now();
    }
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
    assert!(!world.setup.pid_file().exists());
}

fn early_signal_ends_what_is_no_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let setup = setup();
        let gate = Gate::new(&setup);
        let mut child = gate.start(&setup, "--check");
        send(&child, signal);
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

fn interrupted_start_leaves_no_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let setup = setup();
        let mut parent = start_that_lasts(&setup);
        let daemon = setup.running();
        send(&parent, signal);
        assert_eq!(parent.wait().unwrap().signal(), Some(signal as i32));
        daemon.wait_exit();
        assert!(!setup.pid_file().exists(), "it left in good order");
    }
}

fn hung_up_start_goes_on() {
    let setup = setup();
    let mut parent = start_that_lasts(&setup);
    let daemon = setup.running();
    send(&parent, Signal::SIGHUP);
    assert_eq!(parent.wait().unwrap().signal(), Some(Signal::SIGHUP as i32));
    fs::remove_file(setup.conf_dir.join("ballast")).unwrap();
    daemon.wait_state("backup");
}

fn log_as_large_as_may_be() {
    let world = World::new();
    fs::write(world.setup.log_file(), vec![b'\n'; 8192]).unwrap();
    let mut command = world.setup.command();
    let limit = || Ok(setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096)?);
    // SAFETY: nothing but a system call.
    unsafe { command.pre_exec(limit) };
    let keepwatch = world.setup.adopt(&command.output().unwrap());
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.agent.wait_acknowledged("master");
    assert_eq!(fs::metadata(world.setup.log_file()).unwrap().len(), 8192);
}

/// The kernel kills whoever blocks the signal of a violation.
#[cfg(target_arch = "x86_64")]
fn blocked_violation() {
    let world = World::new();
    let keepwatch = world.setup.adopt(&careless(world.setup.command()).output().unwrap());
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.replace_next_call(libc::SYS_getppid);
    keepwatch.wait_log("is not allowed; ending", 1);
}
