//! Promise 16: the running daemon has only the privileges that it needs, and still does everything.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;

use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::old_kernel::without_seccomp;
use lab::users::NOBODY;
use nix::sys::signal::Signal;

use crate::world::{NO_AGENT, NO_INTERFACE, World, add_interface, setup};

/// Returns the setup of a daemon that runs as user nobody, who owns its directories.
pub fn setup_of_nobody() -> Setup {
    let setup = setup().with("--user=nobody").with("--group=nogroup");
    give(&setup, NOBODY, NOBODY);
    setup
}

/// Gives the directories of a setup to a user.
pub fn give(setup: &Setup, user: u32, group: u32) {
    for directory in [setup.directory(), &setup.conf_dir, &setup.state_path] {
        chown(directory, Some(user), Some(group)).unwrap();
    }
}

fn assert_status(keepwatch: &Running<'_>, lines: &[(&str, &str)]) {
    for (field, value) in lines {
        assert_eq!(keepwatch.proc_status(field), *value, "{field}");
    }
}

const NO_CAPABILITIES: &str = "0000000000000000";

const LOCKED: [(&str, &str); 6] = [
    ("CapInh", NO_CAPABILITIES),
    ("CapBnd", NO_CAPABILITIES),
    ("CapAmb", NO_CAPABILITIES),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
    ("Groups", ""),
];

/// With CAP_DAC_OVERRIDE, root can write into an agent's directory.
#[apply(trial)]
fn root_keeps_one_capability() {
    let world = World::new();
    let keepwatch = world.setup.daemonize();
    // In a user namespace the groups cannot be changed.
    let lines = if lab::users::has_others() { &LOCKED[..] } else { &LOCKED[..5] };
    assert_status(&keepwatch, lines);
    let dac_override = "0000000000000002";
    assert_status(&keepwatch, &[("CapPrm", dac_override), ("CapEff", dac_override)]);
}

#[cfg(not(feature = "defmt"))]
#[apply(trial)]
fn memory() {
    let world = World::new();
    let keepwatch = world.setup.daemonize();
    lab::hardening::assert_hardened(keepwatch.pid(), &world.setup.program);
}

#[apply(trial_with_other_users)]
fn user_has_no_capability() {
    let world = World::with(setup_of_nobody());
    let keepwatch = world.setup.daemonize();
    assert_status(&keepwatch, &LOCKED);
    assert_status(&keepwatch, &[("CapPrm", NO_CAPABILITIES), ("CapEff", NO_CAPABILITIES)]);
    // It is not dumpable, so its files in /proc belong to root.
    let proc = fs::metadata(format!("/proc/{}/fd", keepwatch.pid())).unwrap();
    assert_eq!(proc.uid(), 0);
}

/// Standard streams to `/dev/null`, epoll, signalfd and timerfd, log, pid file, state file and its spare, two netlink sockets,
/// a packet socket and the one for the next request to the agent.
#[apply(trial)]
fn descriptors() {
    let world = World::new();
    let keepwatch = world.setup.daemonize();
    keepwatch.wait_log("Notified", 1);
    keepwatch.wait_asleep();
    let fds = fs::read_dir(format!("/proc/{}/fd", keepwatch.pid())).unwrap();
    let kind = |target: PathBuf| {
        let target = target.strip_prefix(world.setup.directory()).unwrap_or(&target);
        let target = target.to_str().unwrap();
        let named = target.find("keepwatch-").map_or(target.len(), |start| start + 10);
        target[..named].split('[').next().unwrap().to_string()
    };
    let mut kinds: Vec<_> =
        fds.map(|fd| kind(fs::read_link(fd.unwrap().path()).unwrap())).collect();
    kinds.sort();
    let [null, anonymous, socket] = ["/dev/null", "anon_inode:", "socket:"];
    let log = "conf/neutron-keepalived-state-change.log";
    let files = ["conf/.state.keepwatch-", log, "conf/state", "router.monitor.pid"];
    // Events, questions, claims, and the next connection to the agent.
    let expected = [&[null; 3], &[anonymous; 3], &files[..], &[socket; 4]];
    assert_eq!(kinds, expected.concat());
}

/// A resource limit denies it, even without the seccomp filter. The kernel exempts root.
#[cfg(target_arch = "x86_64")]
#[apply(trial_with_other_users)]
fn user_cannot_fork() {
    let world = World::with(setup_of_nobody().with("--no-seccomp"));
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    let process = keepwatch.make_call(nix::libc::SYS_fork, &[]);
    assert_eq!(process, Some(-i64::from(nix::libc::EAGAIN)));
}

/// On a kernel without seccomp filters, the daemon works, and logs that.
#[apply(trial)]
fn kernel_without_filters() {
    let world = World::new();
    let keepwatch = world.setup.daemonize_with(without_seccomp);
    keepwatch.wait_log("no seccomp filter: this architecture or kernel does not support it", 1);
    world.deliver(true);
}

/// An unprivileged daemon does everything that one of root's does.
#[apply(trial_with_other_users)]
fn user_does_everything() {
    let world = World::with(setup_of_nobody().with("--garp_master_delay=0.2"));
    add_interface(&world.rtnl, "lan0");
    let capture = Capture::new("lan0-peer");
    let keepwatch = world.setup.daemonize();
    world.agent.wait_acknowledged("backup");
    world.deliver(true);
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    capture.wait("three rounds", |frames| frames.iter().filter(|f| f.is_arp()).count() >= 6);
    fs::rename(world.setup.log_file(), world.setup.conf_dir.join("log.1")).unwrap();
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("Notified agent router", 1);
    for file in [world.setup.state_file(), world.setup.log_file()] {
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (NOBODY, 0o644), "{metadata:?}");
    }
    keepwatch.terminate();
    assert!(!world.setup.pid_file().exists());
}

#[apply(trial_with_other_users)]
fn names_and_numbers() {
    for (options, uid, gid) in [
        (&["--user=nobody"][..], NOBODY, NOBODY),
        (&["--group=nogroup"], 0, NOBODY),
        (&["--user=12345", "--group=54321"], 12345, 54321),
    ] {
        let setup = options.iter().fold(setup(), |setup, option| setup.with(*option));
        give(&setup, uid, gid);
        let [uids, gids] = [uid, gid].map(|id| format!("{id}\t{id}\t{id}\t{id}"));
        setup.expect(&[NO_AGENT, NO_INTERFACE]);
        assert_status(&setup.daemonize(), &[("Uid", &uids), ("Gid", &gids)]);
    }
}
