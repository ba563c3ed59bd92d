//! The datagrams to a service manager (`sd_notify(3)`), in order.

use std::fs;
use std::iter::from_fn;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use lab::daemon::Setup;
use lab::files::{receive, wait_readable};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};

use crate::world::{World, set_sysctl, setup};

/// A service manager.
pub struct Manager(UnixDatagram);

impl Manager {
    /// Binds a socket in the directory of this setup, and sets it in the daemon's environment.
    pub fn new(setup: &mut Setup) -> Self {
        let path = setup.directory().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        setup.environment.push(("NOTIFY_SOCKET".into(), path.into()));
        Self(socket)
    }

    /// Binds an abstract socket. Landlock denies the running daemon to connect to it: see `start::landlock`.
    fn new_abstract(setup: &mut Setup) -> Self {
        let name = setup.directory().join("notify").to_str().unwrap().to_string();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        setup.environment.push(("NOTIFY_SOCKET".into(), format!("@{name}").into()));
        Self(UnixDatagram::bind_addr(&address).unwrap())
    }

    /// Returns the next datagram.
    pub fn receive(&self) -> String {
        receive(&self.0)
    }

    fn expect(&self, datagrams: &[&str]) {
        for datagram in datagrams {
            assert_eq!(self.receive(), *datagram);
        }
    }

    /// Waits for a datagram.
    fn wait(&self, datagram: &str) {
        while self.receive() != datagram {}
    }

    /// Reads the datagrams that wait, and returns their number.
    fn count_waiting(&self) -> u64 {
        let waits = || wait_readable(&self.0, Duration::ZERO).then(|| self.receive());
        from_fn(waits).map(|_| 1).sum()
    }

    fn expect_silence(&self) {
        self.0.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        assert!(self.0.recv(&mut buffer).is_err(), "{}", String::from_utf8_lossy(&buffer));
    }
}

const BACKUP: &str = "STATUS=backup: 169.254.0.5/24 is not on ha0";
const MASTER: &str = "STATUS=master: 169.254.0.5/24 is on ha0";

fn monotonic_micros() -> i128 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    i128::from(now.tv_sec()) * 1_000_000 + i128::from(now.tv_nsec()) / 1000
}

#[apply(trial)]
fn state_reloads_and_end() {
    for make in [Manager::new, Manager::new_abstract] {
        let mut world = World::new();
        let manager = make(&mut world.setup);
        let keepwatch = world.setup.spawn();
        manager.expect(&["READY=1"]);
        assert_eq!(world.setup.state(), "backup", "READY before the state was written");
        manager.expect(&[BACKUP]);
        world.set_vip(true);
        manager.expect(&[MASTER]);
        assert_eq!(world.setup.state(), "master");

        fs::remove_file(world.setup.state_file()).unwrap();
        let before = monotonic_micros();
        keepwatch.signal(Signal::SIGHUP);
        let reloading = manager.receive();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let time: i128 = time.unwrap_or_else(|| panic!("{reloading}")).parse().unwrap();
        assert!((before..=monotonic_micros()).contains(&time));
        manager.expect(&["READY=1"]);
        assert_eq!(world.setup.state(), "master", "READY before the state was written again");

        keepwatch.terminate();
        manager.expect(&["STOPPING=1"]);
        manager.expect_silence();
    }
}

/// The socket is bound only once the daemon has tried to send READY.
#[apply(trial)]
fn manager_that_is_late() {
    let mut world = World::new();
    let path = world.setup.directory().join("notify");
    world.setup.environment.push(("NOTIFY_SOCKET".into(), path.clone().into()));
    world.setup.environment.push(("WATCHDOG_USEC".into(), "200000".into()));
    let keepwatch = world.setup.start();
    keepwatch.wait_state("backup");
    world.agent.wait_acknowledged("backup");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    manager.expect(&["READY=1", BACKUP, "WATCHDOG=1"]);
}

#[apply(trial)]
fn missing_interface_is_shown() {
    let mut world = World::with(setup().with("--active-word=primary"));
    world.setup.expect(&["; expected "]);
    let manager = Manager::new(&mut world.setup);
    world.set_vip(true);
    world.rtnl.rename("ha0", "away");
    let keepwatch = world.setup.spawn();
    let waiting = "STATUS=backup: 169.254.0.5/24 is not on ha0; interface not found";
    let elsewhere = format!("{waiting}; 169.254.0.5/24 is on away");
    manager.expect(&["READY=1", waiting, &elsewhere]);
    keepwatch.wait_log("watched interface ha0 not found", 1);
    world.rtnl.rename("away", "ha0");
    manager.expect(&["STATUS=primary: 169.254.0.5/24 is on ha0"]);
    world.rtnl.rename("ha0", "away");
    manager.wait(&elsewhere);
}

#[apply(trial)]
fn only_the_watchdog_wakes_it() {
    const MESSAGES: u64 = 10;
    let mut world = World::with(setup().with("--renotify=0"));
    // A full socket wakes the daemon, too.
    set_sysctl("unix/max_dgram_qlen", 1000);
    let manager = Manager::new(&mut world.setup);
    world.setup.environment.push(("WATCHDOG_USEC".into(), "200000".into()));
    let keepwatch = world.setup.spawn();
    manager.expect(&["READY=1", BACKUP]);
    world.agent.wait_acknowledged("backup");
    manager.expect(&["WATCHDOG=1", "WATCHDOG=1"]);
    let slept = || keepwatch.proc_status("voluntary_ctxt_switches").parse::<u64>().unwrap();
    let before = slept();
    // Those that wait at either count may have been sent before or after it.
    let waiting = manager.count_waiting();
    (0..MESSAGES).for_each(|_| manager.expect(&["WATCHDOG=1"]));
    let wakes = slept() - before;
    let most = waiting + MESSAGES + manager.count_waiting();
    // At either count, the daemon may or may not have gone to sleep.
    assert!((MESSAGES - 1..=most + 1).contains(&wakes), "woken {wakes} times by {most}");
}

#[apply(trial)]
fn watchdog_of_another_process() {
    let mut world = World::new();
    let manager = Manager::new(&mut world.setup);
    world.setup.environment.push(("WATCHDOG_USEC".into(), "200000".into()));
    let other = std::process::id().to_string();
    world.setup.environment.push(("WATCHDOG_PID".into(), other.into()));
    let keepwatch = world.setup.spawn();
    manager.expect(&["READY=1", BACKUP]);
    world.agent.wait_acknowledged("backup");
    keepwatch.wait_asleep();
}

/// The daemon sends more than the socket holds (`net.unix.max_dgram_qlen`), and then the socket is closed.
#[apply(trial)]
fn manager_that_never_reads() {
    let mut world = World::new();
    let manager = Manager::new(&mut world.setup);
    let keepwatch = world.setup.start();
    for state in ["master", "backup"].iter().cycle().take(50) {
        world.set_vip(*state == "master");
        keepwatch.wait_state(state);
    }
    manager.expect(&["READY=1", BACKUP, MASTER]);
    drop(manager);
    // The agent may have acknowledged an earlier `master`, so the test waits for the state file first.
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.agent.wait_acknowledged("master");
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
}
