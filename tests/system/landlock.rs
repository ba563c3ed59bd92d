//! Promise 16: what Landlock denies, except for files (`attacks`), and what it must not deny.

use std::fmt::Debug;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use keepwatch::start::landlock::deny_all_but;
use lab::files::{Directory, Watch, content};
use lab::old_kernel::{refused_call, without_call};
use lab::users::NOBODY;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use crate::privileges::setup_of_nobody;
use crate::scripted::{hooked, wait_hook_succeeded};
use crate::state_file::wait_spare;
use crate::world::{World, setup};

/// Only the spawned thread is restricted.
#[apply(trial)]
fn sockets_and_processes() {
    fn denied<T: Debug>(result: io::Result<T>) {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let name = SocketAddr::from_abstract_name("keepwatch-landlock").unwrap();
    let _listener = UnixListener::bind_addr(&name).unwrap();
    let restricted = thread::spawn(move || {
        prctl::set_no_new_privs().unwrap();
        deny_all_but(&[]).unwrap().restrict_self().unwrap();
        denied(TcpListener::bind("127.0.0.1:0"));
        denied(UnixStream::connect_addr(&name));
        denied(kill(getppid(), None).map_err(io::Error::from));
        kill(Pid::this(), None).unwrap();
    });
    restricted.join().unwrap();
}

/// The daemon works on a kernel without Landlock, and in a container whose filter denies it.
#[apply(trial)]
fn kernel_without_landlock() {
    for refuse in [without_call, refused_call] {
        let world = World::new();
        let keepwatch = world
            .setup
            .daemonize_with(|command| refuse(command, libc::SYS_landlock_create_ruleset));
        keepwatch.wait_log("this kernel has no Landlock: access to files is not limited", 1);
        world.set_vip(true);
        keepwatch.wait_state("master");
    }
}

/// In a container whose filter is older than `faccessat2(2)`, programs can be run, and the files have their rules.
#[apply(trial)]
fn filter_without_faccessat2() {
    let hooked = hooked(setup());
    let refuse = |command: &mut _| refused_call(command, libc::SYS_faccessat2);
    let keepwatch = hooked.world.setup.daemonize_with(refuse);
    hooked.world.deliver(true);
    assert_eq!(hooked.world.setup.state(), "master");
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
}

/// `conf_dir` may be a symlink to the recreated directory.
#[apply(trial)]
fn conf_dir_recreated() {
    let elsewhere = Directory::new();
    let there = elsewhere.sub("there");
    let mut setup = setup();
    setup.conf_dir = setup.directory().join("link");
    symlink(&there, &setup.conf_dir).unwrap();
    let log = format!("--log-file={}", setup.directory().join("log").display());
    let world = World::with(setup.with(log));
    let _keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    wait_spare(&world.setup);
    fs::remove_dir_all(&there).unwrap();
    fs::create_dir(&there).unwrap();
    world.deliver(true);
    assert_eq!(content(&there.join("state")), "master");
}

/// It is exchanged with the spare, as without Landlock.
#[apply(trial)]
fn directory_in_place_of_the_state_file() {
    let world = World::new();
    world.setup.expect(&["no spare state file: "]);
    let _keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    wait_spare(&world.setup);
    fs::remove_file(world.setup.state_file()).unwrap();
    fs::create_dir(world.setup.state_file()).unwrap();
    world.deliver(true);
    assert_eq!(world.setup.state(), "master");
}

/// Only without root: to reopen a recreated directory, root would need rights to its parent.
#[apply(trial_with_other_users)]
fn log_directory_recreated() {
    let elsewhere = Directory::new();
    let make = |name: &str| {
        let logs = elsewhere.sub(name);
        chown(&logs, Some(NOBODY), None).unwrap();
        logs
    };
    let logs = make("logs");
    let log = logs.join("log");
    let world = World::with(setup_of_nobody().with(format!("--log-file={}", log.display())));
    let keepwatch = world.setup.daemonize();
    let wait = |logs: &Path, text: &str| {
        Watch::new(logs).until(text, || world.setup.log_in(&log).contains(text).then_some(()));
    };
    wait(&logs, "agent ");
    fs::rename(&logs, elsewhere.path().join("old")).unwrap();
    let logs = make("logs");
    keepwatch.signal(Signal::SIGHUP);
    wait(&logs, "SIGHUP: resynchronising");
}
