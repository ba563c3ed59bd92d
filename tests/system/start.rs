//! Promises 1, 2 and 19: the start misses no event, and always reports the first state, in the exact words.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use lab::files::{Watch, await_readable};

use crate::privileges::setup_of_nobody;
use crate::scripted::install;
use crate::world::{World, mount_hanging, setup, word};

#[apply(trial)]
fn vip_present() {
    let world = World::new();
    world.set_vip(true);
    let keepwatch = world.setup.start();
    assert_eq!(world.setup.state(), "master");
    world.agent.wait_acknowledged("master");
    keepwatch.wait_log("Notified agent router", 1);
    let router = &world.setup.router;
    for line in [
        format!(" INFO keepwatch [-] {router}: Initial status of router {router} is master\n"),
        format!(" INFO keepwatch [-] {router}: Wrote router {router} state master\n"),
        format!(" INFO keepwatch [-] {router}: Notified agent router {router}, state master\n"),
    ] {
        assert!(world.setup.log().contains(&line), "{line}{}", world.setup.log());
    }
}

/// The VIP changes at another moment of each of 200 starts.
#[apply(trial)]
fn vip_changed_around_start() {
    let world = World::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for run in 0..200 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let present = run % 2 == 0;
        let keepwatch = world.setup.spawn();
        // The start takes one or two milliseconds.
        thread::sleep(Duration::from_micros(random % 4000));
        world.deliver(present);
        keepwatch.wait_state(word(present));
        keepwatch.terminate();
        world.agent.assert_last_state(word(present));
    }
}

#[apply(trial)]
fn daemon_is_up_when_its_parent_returns() {
    let world = World::new();
    let keepwatch = world.setup.daemonize();
    assert_eq!(world.setup.state(), "backup", "the state file");
    let cmdline = fs::read_to_string(format!("/proc/{}/cmdline", keepwatch.pid())).unwrap();
    assert!(cmdline.contains(&world.setup.router), "the agent looks for the router in {cmdline:?}");
    let stat = fs::read_to_string(format!("/proc/{}/stat", keepwatch.pid())).unwrap();
    let fields: Vec<&str> = stat.split_whitespace().collect();
    assert_ne!(fields[5], fields[0], "the daemon leads a session");
    assert_eq!(fields[6], "0", "the daemon has a terminal");
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", keepwatch.pid())).unwrap().as_os_str(), "/");
    world.deliver(true);
    assert_eq!(world.setup.state(), "master");
    keepwatch.terminate();
    assert!(!world.setup.pid_file().exists());
}

/// Relative paths start at the working directory, which the daemon leaves for `/` even in the foreground.
#[apply(trial)]
fn relative_paths() {
    let world = World::new();
    let setup = &world.setup;
    let socket = UnixDatagram::bind(setup.directory().join("notify")).unwrap();
    let mut command = setup.command();
    command.args([
        "--conf_dir=conf",
        "--state_path=agent",
        "--log-file=log",
        "--pid_file=router.monitor.pid",
    ]);
    command.current_dir(setup.directory()).env("NOTIFY_SOCKET", "notify").arg("--foreground");
    let keepwatch = setup.attend(command.spawn().unwrap());
    await_readable(&socket, "a datagram");
    world.agent.wait_acknowledged("backup");
    assert_eq!(setup.state(), "backup");
    assert_eq!(lab::files::content(&setup.pid_file()), keepwatch.pid().to_string());
    let cwd = fs::read_link(format!("/proc/{}/cwd", keepwatch.pid())).unwrap();
    assert_eq!(cwd.as_os_str(), "/");
}

/// Nothing there is needed.
#[apply(trial)]
fn deleted_working_directory() {
    let setup = setup();
    let start = |options: &[&str]| {
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
        let mut command = setup.command_behind(&["sh", "-c", script]);
        command.current_dir(setup.directory()).args(options);
        let output = String::from_utf8(command.output().unwrap().stderr).unwrap();
        // The shell that starts an emulator needs such a directory, and says so.
        let lines = output.split_inclusive('\n');
        lines.filter(|line| !line.starts_with("sh: 0: getcwd()")).collect::<String>()
    };
    let missing = "No such file or directory (ENOENT)";
    let [log, others] = ["--log-file=log", "--log-dir=/tmp"];
    assert_eq!(
        start(&[log, others, "--namespace=none", "--hook=true"]),
        format!("keepwatch: namespace /run/netns/none: {missing}\n")
    );
    let error = "expected an absolute path, without a working directory";
    assert_eq!(start(&[log]), format!("keepwatch: --log-file: {error}: {missing}\n"));
}

/// On a file system whose server does not answer, system calls about files never return. A daemon with the word `--check` as
/// a value, which was started before, continues.
#[apply(trial)]
fn hanging_check_is_killed() {
    let world = World::with(setup().with("--router_id").with("--check"));
    let daemon = world.setup.start();
    let hanging = setup();
    let _server = mount_hanging(&hanging.conf_dir);
    let status = hanging.command().arg("--check").output().unwrap().status;
    assert_eq!(status.signal(), Some(nix::libc::SIGALRM));
    assert!(daemon.terminate().is_some_and(|status| status.success()), "it has no time limit");
}

#[apply(trial)]
fn odd_names_and_addresses_have_a_warning() {
    let cases = [
        ("--monitor_cidr=192.0.2.0/24", Some("192.0.2.0/24: the address of the network")),
        ("--monitor_cidr=192.0.2.255/24", Some("192.0.2.255/24: the broadcast address")),
        ("--monitor_cidr=255.255.255.255/0", Some("255.255.255.255/0: the broadcast address")),
        ("--monitor_cidr=127.0.0.1/8", Some("127.0.0.1/8: a loopback address")),
        ("--monitor_cidr=::1/128", Some("::1/128: a loopback address")),
        ("--monitor_interface=eth0@if4", Some("in `ip link` the name ends before @: eth0")),
        ("--monitor_cidr=192.0.2.1/24", None),
        ("--monitor_cidr=192.0.2.0/31", None),
        ("--monitor_cidr=192.0.2.255/32", None),
        (
            "--monitor_cidr=fd00::/64",
            Some("fd00::/64: the anycast address of the network's routers"),
        ),
        ("--monitor_cidr=fd00::1/64", None),
        ("--monitor_cidr=fd00::/127", None),
    ];
    for (option, warning) in cases {
        let (code, report) = setup().with(option).check();
        assert_eq!(code, Some(0), "{report}");
        let warnings: Vec<_> = report.lines().filter(|line| line.starts_with("warning")).collect();
        assert_eq!(warnings.len(), usize::from(warning.is_some()), "{report}");
        assert!(warning.is_none_or(|warning| report.contains(warning)), "{report}");
    }
}

#[apply(trial_with_other_users)]
fn check_names_the_user_who_is_denied() {
    let world = World::with(setup_of_nobody());
    let socket = world.setup.state_path.join("keepalived-state-change");
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
    let (code, report) = world.setup.check();
    let line =
        "keepalived-state-change: Permission denied (EACCES), as user 65534; would be retried\n";
    assert!(code == Some(0) && report.contains(line), "{report}");
}

#[apply(trial)]
fn check_changes_nothing() {
    let world = World::with(install(setup()));
    world.set_vip(true);
    let watch = Watch::new(world.setup.directory());
    let (code, report) = world.setup.check();
    assert_eq!(code, Some(0), "{report}");
    for fact in [
        "name        3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11\n",
        "VIP         169.254.0.5/24 on ha0: present, would start as master\n",
        "keepalived-state-change: exists\n",
        "/hook: can be run\n",
    ] {
        assert!(report.contains(fact), "{report}");
    }
    watch.until("no files in the directory", || {
        let files = |path| fs::read_dir(path).unwrap().count();
        (files(&world.setup.conf_dir) == 0 && !world.setup.pid_file().exists()).then_some(())
    });
    assert!(world.agent.arrivals().is_empty());
}
