//! Promise 6 when the daemon itself was held up: it heeds what came meanwhile.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::NEWEST_REPLY;
use lab::agent::{Agent, FullBacklog, Manners};
use lab::daemon::Running;
use lab::users::has_others;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::world::{World, setup, word};

/// Longer than the reply is waited for.
const TOO_LONG: Duration = Duration::from_secs(6);

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        stopped_while_the_agent_answers,
        stopped_while_the_backlog_is_full,
        stopped_and_asked_to_leave,
    ];
    // Only root may mount, and not every machine has what makes a file system.
    let can_freeze = has_others()
        && ["/dev/loop-control", "/usr/sbin/mkfs.ext4", "/usr/sbin/fsfreeze"]
            .iter()
            .all(|path| Path::new(path).exists());
    let freezing = lab::trials![disk_hangs];
    trials.extend(freezing.into_iter().map(|trial| trial.with_ignored_flag(!can_freeze)));
    trials
}

/// Waits until it is in this state, as `/proc/PID/stat` calls it.
fn wait_process_state(keepwatch: &Running<'_>, state: &str) {
    let deadline = Instant::now() + lab::PATIENCE;
    while !keepwatch.proc_status("State").starts_with(state) {
        assert!(Instant::now() < deadline, "{}", keepwatch.proc_status("State"));
        // Nothing tells of it, so it has to be looked at now and then.
        sleep(Duration::from_millis(1));
    }
}

fn stopped_while_the_agent_answers() {
    let mut world = World::new();
    world.agent.stop(true);
    let socket = world.setup.state_path.join("keepalived-state-change");
    let listener = UnixListener::bind(socket).unwrap();
    let keepwatch = world.setup.start();
    let (mut stream, _) = listener.accept().unwrap();
    let read = stream.read(&mut [0; 4096]).unwrap();
    assert!(read > 0);
    keepwatch.signal(Signal::SIGSTOP);
    wait_process_state(&keepwatch, "T");
    stream.write_all(NEWEST_REPLY).unwrap();
    drop(stream);
    sleep(TOO_LONG);
    keepwatch.signal(Signal::SIGCONT);
    keepwatch.wait_log("Notified agent router", 1);
    let status = keepwatch.status();
    assert!(status.contains("notifications=1 notification_failures=0"), "{status}");
    assert!(!world.setup.log().contains("reply timed out"), "{}", world.setup.log());
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "said again");
}

/// The wait for room ends with `EINTR`, which says nothing of the agent.
fn stopped_while_the_backlog_is_full() {
    let mut world = World::new();
    world.agent.stop(true);
    let full = FullBacklog::new(&world.setup.state_path);
    let keepwatch = world.setup.start();
    for present in [true, false].into_iter().cycle().take(20) {
        world.set_vip(present);
        keepwatch.wait_state(word(present));
        keepwatch.signal(Signal::SIGSTOP);
        wait_process_state(&keepwatch, "T");
        keepwatch.signal(Signal::SIGCONT);
    }
    drop(full);
    Agent::start(&world.setup.state_path).wait_acknowledged("backup");
    assert!(!world.setup.log().contains("EINTR"), "{}", world.setup.log());
}

/// More events than are read in one go are in the queue, and the last of them matters.
fn stopped_and_asked_to_leave() {
    let world = World::new();
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    keepwatch.signal(Signal::SIGSTOP);
    wait_process_state(&keepwatch, "T");
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

/// A file system of its own that can be made to hang.
struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Makes it in an image and mounts it.
    fn mount(image: &Path, directory: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &[Path::new("-q"), image]);
        run("mount", &[Path::new("-oloop"), image, directory]);
        Self { directory: directory.into() }
    }

    /// Whoever writes to it waits until it is thawed. In vain wait also those that kill who waits, so it
    /// is thawed whatever happens.
    fn freeze(&self) -> Frozen<'_> {
        run("fsfreeze", &[Path::new("-f"), &self.directory]);
        Frozen(self)
    }
}

struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &[Path::new("-u"), &self.0.directory]);
    }
}

fn run(program: &str, arguments: &[&Path]) {
    let output = Command::new(Path::new("/usr/sbin").join(program)).args(arguments).output();
    let output = output.or_else(|_| Command::new(program).args(arguments).output()).unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

/// Until it is back nobody is told; then the agent has all the time that it always has.
fn disk_hangs() {
    let setup = setup();
    let disk = Disk::mount(&setup.directory().join("disk"), &setup.conf_dir);
    let log_file = setup.directory().join("log");
    let setup = setup.with(format!("--log-file={}", log_file.display()));
    let world = World::with(setup);
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    world.agent.behave(Manners::Dribble(reply));
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    let frozen = disk.freeze();
    world.set_vip(true);
    wait_process_state(&keepwatch, "D");
    sleep(TOO_LONG);
    assert_eq!(world.agent.arrivals().len(), 1, "the file comes first");
    drop(frozen);
    world.agent.wait_acknowledged("master");
    keepwatch.wait_state("master");
    keepwatch.terminate();
    let log = world.setup.log_in(&log_file);
    assert!(log.contains("state master") && !log.contains("reply timed out"), "{log}");
    assert_eq!(world.agent.arrivals().len(), 2, "{log}");
}
