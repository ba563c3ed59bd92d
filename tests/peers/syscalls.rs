//! The system calls that the daemon makes once it runs, as strace sees them: all that are allowed are
//! needed, and all that are needed are allowed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use keepwatch::sys::seccomp::ALLOWED;
use lab::agent::Agent;
use lab::files::content;
use lab::old_kernel::without_call;
use lab::users::{NOBODY, SOMEBODY, run_as};
use libtest_mimic::Trial;
use nix::libc::{self, SYS_statx};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![every_rule_is_needed]
}

/// A daemon whose directories belong to various people, and which logs to its standard error. Without
/// announcements it filters what the kernel tells.
fn every_rule_is_needed() {
    let setup = setup().with("--user=nobody").with("--group=nogroup");
    let mut world = World::with(setup.with("--no-announce").with("--detect-split-brain"));
    chown(&world.setup.conf_dir, Some(NOBODY), None).unwrap();
    chown(&world.setup.state_path, Some(SOMEBODY), None).unwrap();
    world.agent.stop(true);
    world.agent = run_as(SOMEBODY, || Agent::start(&world.setup.state_path));
    let socket = world.setup.state_path.join("keepalived-state-change");
    fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    let made = &calls(&world, |_| {}) | &calls(&world, |strace| without_call(strace, SYS_statx));
    let allowed: BTreeSet<libc::c_long> =
        ALLOWED.iter().copied().chain([libc::SYS_socket]).collect();
    // Where the kernel shows the time without a call, there is none to be seen.
    let unseen = BTreeSet::from([libc::SYS_clock_gettime]);
    assert_eq!(made.difference(&allowed).count(), 0, "made: {made:?}");
    assert_eq!(&allowed - &made, &unseen - &made, "allowed, but not needed");
}

/// The calls made by a daemon that sees the VIP come, on what `kernel` makes of this one.
fn calls(world: &World, kernel: impl FnOnce(&mut Command)) -> BTreeSet<libc::c_long> {
    let trace = world.setup.directory().join("trace");
    let mut strace = Strace::start(world, &trace, kernel);
    world.agent.wait_acknowledged("backup");
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    let keepwatch = world.setup.running();
    keepwatch.signal(Signal::SIGTERM);
    assert!(strace.0.wait().unwrap().success());
    world.set_vip(false);
    made(&content(&trace))
}

/// The daemon under strace.
struct Strace(Child);

impl Strace {
    fn start(world: &World, trace: &Path, kernel: impl FnOnce(&mut Command)) -> Self {
        let daemon = world.setup.command();
        let to_stderr = |arg: &&OsStr| !arg.to_string_lossy().starts_with("--log-file");
        let mut command = Command::new("strace");
        command.arg("--syscall-number").arg("-o").arg(trace).arg(daemon.get_program());
        command.args(daemon.get_args().filter(to_stderr)).arg("--foreground");
        kernel(&mut command);
        let streams = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
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
