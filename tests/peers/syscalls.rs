//! The system calls that the daemon makes once it runs, as strace sees them: all that are allowed are
//! needed, and all that are needed are allowed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use keepwatch::sys::seccomp::{ALLOWED, restricted};
use lab::agent::Agent;
use lab::capture::{Capture, Frame};
use lab::files::content;
use lab::users::{NOBODY, SOMEBODY, run_as};
use libtest_mimic::Trial;
use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::world::{World, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![every_rule_is_needed]
}

fn every_rule_is_needed() {
    // Without announcements it filters what the kernel tells.
    let made = &calls("--no-announce") | &calls("--garp_master_repeat=1");
    let allowed = ALLOWED.iter().copied().chain(restricted().map(|(call, ..)| call));
    let allowed: BTreeSet<libc::c_long> = allowed.collect();
    // Where the kernel shows the time without a call, there is none to be seen.
    let unseen = BTreeSet::from([libc::SYS_clock_gettime]);
    assert_eq!(made.difference(&allowed).count(), 0, "made: {made:?}");
    assert_eq!(&allowed - &made, &unseen - &made, "allowed, but not needed");
}

/// The calls of a daemon whose directories belong to various people, and which logs to its standard error.
fn calls(option: &str) -> BTreeSet<libc::c_long> {
    let setup = setup().with("--user=nobody").with("--group=nogroup");
    let mut world = World::with(setup.with(option).with("--detect-split-brain"));
    add_interface(&world.rtnl, "lan0");
    chown(&world.setup.conf_dir, Some(NOBODY), None).unwrap();
    chown(&world.setup.state_path, Some(SOMEBODY), None).unwrap();
    world.agent.stop(true);
    world.agent = run_as(SOMEBODY, || Agent::start(&world.setup.state_path));
    let socket = world.setup.state_path.join("keepalived-state-change");
    fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    let trace = world.setup.directory().join("trace");
    let mut strace = Strace::start(&world, &trace);
    world.agent.wait_acknowledged("backup");
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    let keepwatch = world.setup.running();
    if option != "--no-announce" {
        let capture = Capture::new("lan0-peer");
        world.rtnl.add_address("lan0", "10.0.0.1/24");
        capture.wait("an announcement", |frames| frames.iter().any(Frame::is_arp));
    }
    keepwatch.signal(Signal::SIGTERM);
    assert!(strace.0.wait().unwrap().success());
    made(&content(&trace))
}

/// The daemon under strace.
struct Strace(Child);

impl Strace {
    fn start(world: &World, trace: &Path) -> Self {
        let daemon = world.setup.command();
        let to_stderr = |arg: &&OsStr| !arg.to_string_lossy().starts_with("--log-file");
        let mut command = Command::new("strace");
        command.arg("--syscall-number").arg("-o").arg(trace).arg(daemon.get_program());
        command.args(daemon.get_args().filter(to_stderr)).arg("--foreground");
        let fifo = world.setup.directory().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO");
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
        let writer = File::options().write(true).open(&fifo).expect("a FIFO that is read");
        drop(reader);
        let streams = command.process_group(0).stdout(Stdio::null()).stderr(writer);
        Self(streams.spawn().expect("strace"))
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // And with it the daemon.
        let _ = killpg(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// The numbers of the calls made under the filter.
fn made(trace: &str) -> BTreeSet<libc::c_long> {
    let (_, filtered) = trace.split_once("SECCOMP_MODE_FILTER").expect("a filter");
    let calls = filtered.lines().skip(1).filter_map(|line| line.strip_prefix('['));
    calls.map(|call| call.split(']').next().unwrap().trim().parse().unwrap()).collect()
}
