//! Promises 4 and 13: conntrackd synchronises on each transition and delays nothing else. A script stands in for it.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;

use lab::files::{content, write_program};
use lab::users::NOBODY;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, mkfifo, setgroups};

use crate::scripted::tracked;
use crate::world::{World, setup};

/// conntrackd runs as root with one capability, in the namespace, and its configuration is standard input.
#[apply(trial)]
fn commands_of_each_state() {
    let tracked = tracked(setup());
    fs::write(tracked.world.setup.conf_dir.join("conntrackd.conf"), "the configuration\n").unwrap();
    let identity = r"echo $1 $2; id -u; readlink /proc/self/ns/net; cat <$2
        grep -E '^(NoNewPrivs|Cap(Prm|Eff|Bnd|Inh))' /proc/self/status";
    tracked.when("-n", &format!("({identity}) >{}/identity", tracked.record.display()));
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.flags(), "-t-n");
    tracked.world.set_vip(true);
    tracked.wait_synced(&keepwatch, "primary");
    assert_eq!(tracked.flags(), "-t-n-c-f-R-B");
    assert_eq!((keepwatch.counter("commands"), keepwatch.counter("command_failures")), (6, 0));
    let inside = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let mut expected = format!("-C /proc/self/fd/0\n0\n{}\nthe configuration\n", inside.display());
    for (set, value) in [("Inh", 0), ("Prm", 2), ("Eff", 2), ("Bnd", 2)] {
        writeln!(expected, "Cap{set}:\t{value:016x}").unwrap();
    }
    assert_eq!(content(&tracked.record.join("identity")), expected + "NoNewPrivs:\t1\n");
}

#[apply(trial)]
fn failure() {
    let tracked = tracked(setup());
    tracked.when("-c", "echo cannot commit >&2; exit 3");
    tracked.when("-f", "kill -SEGV $$");
    // A real-time signal, which has no name.
    tracked.when("-R", "kill -40 $$");
    tracked.world.setup.expect(&[
        "conntrackd -c: ",
        "conntrackd -f: ",
        "conntrackd -R: ",
        "conntrackd -t: not started: ",
    ]);
    tracked.world.set_vip(true);
    let keepwatch = tracked.world.setup.start();
    tracked.wait("the commands behind a failure", || tracked.flags().starts_with("-c-f-R-B-c"));
    assert!(!tracked.world.setup.log().contains("Synced connection tracking state"));
    for line in [
        " INFO keepwatch [-] 3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11: conntrackd: cannot commit\n",
        ": conntrackd -c: exit code 3\n",
        ": conntrackd -f: killed by SIGSEGV\n",
        ": conntrackd -R: killed by signal 40\n",
    ] {
        assert!(tracked.world.setup.log().contains(line), "{}", tracked.world.setup.log());
    }
    assert!(keepwatch.counter("command_failures") >= 3);
    // The state stays, so its commands are repeated.
    tracked.when("-f", "");
    tracked.when("-R", "");
    tracked.wait("another failure", || tracked.flags().starts_with("-c-f-R-B-c-f-R-B-c"));
    tracked.when("-c", "");
    keepwatch.wait_log("Synced connection tracking state on primary for router", 1);
    let log = tracked.world.setup.log();
    for once in ["cannot commit\n", ": conntrackd -c: exit code 3\n"] {
        assert_eq!(log.matches(once).count(), 1, "{log}");
    }
    fs::remove_file(tracked.record.join("conntrackd")).unwrap();
    tracked.world.set_vip(false);
    keepwatch.wait_log("conntrackd -n: not started: No such file or directory (ENOENT): the program, or the interpreter", 1);
    assert!(!tracked.world.setup.log().contains("Synced connection tracking state on backup"));
}

#[apply(trial)]
fn hang() {
    let tracked = tracked(setup());
    tracked.when("-t", "kill -STOP $$");
    let keepwatch = tracked.world.setup.start();
    tracked.world.agent.wait_acknowledged("backup");
    keepwatch.wait_log("conntrackd -t: timed out after 30 s and killed\n", 1);
    tracked.when("-t", "");
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.flags(), "-t-n-t-n");
}

/// It is found by its control socket, and gets what a new conntrackd lacks, but not the commands of a transition.
#[apply(trial)]
fn restarted() {
    let tracked = tracked(setup());
    let setup = &tracked.world.setup;
    let socket = setup.directory().join("ctl");
    let configuration = format!(
        "General {{\n  # Path /dev/null\n  UNIX {{\n    Path {}\n  }}\n}}\n",
        socket.display()
    );
    fs::write(setup.conf_dir.join("conntrackd.conf"), configuration).unwrap();
    let _first = UnixListener::bind(&socket).unwrap();
    let keepwatch = setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    fs::remove_file(&socket).unwrap();
    let _second = UnixListener::bind(&socket).unwrap();
    keepwatch.wait_log("conntrackd was restarted; synchronising again\n", 1);
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.flags(), "-t-n-n");
}

#[apply(trial)]
fn output() {
    let tracked = tracked(setup());
    let lines = r#"printf "can't\ntwo \033[31m\r\n\377\nin "; sleep 0.1; printf 'pieces\nno end'"#;
    let escapes = r"printf %100s | tr ' ' '\033'; echo the reason";
    tracked.when("-t", &format!("{escapes}; {lines}"));
    tracked.world.setup.expect(&["conntrackd: more output discarded"]);
    // Escaped, it is too long for a line.
    tracked.when("-n", r#"yes "$(printf '\033')" | tr -d '\n' | head -c 100000"#);
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    for line in ["can't\n", "two \\u{1b}[31m\\r\n", "\u{fffd}\n", "in pieces\n", "no end\n"] {
        let line = format!("conntrackd: {line}");
        keepwatch.wait_log(&line, 1);
    }
    // With its escapes it takes more than one line.
    keepwatch.wait_log("the reason\n", 1);
    let log = tracked.world.setup.log();
    assert!(log.lines().all(|line| line.len() < 512 && !line.contains('\x1b')), "{log}");
}

/// Neutron's agent writes the configuration after it has started the monitor.
#[apply(trial)]
fn late_configuration() {
    let tracked = tracked(setup());
    let setup = &tracked.world.setup;
    let configuration = setup.directory().join("own.conf");
    let option = format!("--conntrackd-conf={}", configuration.display());
    let keepwatch = setup.daemonize_with(|command| _ = command.arg(option));
    keepwatch.wait_log("waiting for conntrackd's configuration\n", 1);
    tracked.world.agent.wait_acknowledged("backup");
    assert_eq!(tracked.flags(), "");
    fs::write(&configuration, "").unwrap();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.flags(), "-t-n");
    assert_eq!(setup.log().matches("configuration").count(), 1, "{}", setup.log());
    assert_eq!(keepwatch.counter("command_failures"), 0);
}

/// Only a regular file is passed to conntrackd.
#[apply(trial)]
fn no_configuration() {
    let tracked = tracked(setup());
    let setup = &tracked.world.setup;
    let configuration = setup.conf_dir.join("conntrackd.conf");
    setup.expect(&["conntrackd -t: not started: configuration"]);
    let put: [(&dyn Fn(), &str); 3] = [
        (&|| symlink("/etc/shadow", &configuration).unwrap(), "(ELOOP)"),
        (&|| mkfifo(&configuration, Mode::S_IRWXU).unwrap(), "(EINVAL)"),
        (&|| fs::create_dir(&configuration).unwrap(), "(EINVAL)"),
    ];
    for (put, error) in put {
        let _ = fs::remove_file(&configuration);
        let _ = fs::remove_file(setup.log_file());
        put();
        let (code, report) = setup.check();
        assert!(report.contains(error) && code == Some(0), "{report}");
        let keepwatch = setup.start();
        keepwatch.wait_log("conntrackd -n: not started: configuration", 1);
        let log = setup.log();
        let line =
            log.lines().find(|line| line.contains("conntrackd -t: not started: configuration"));
        assert!(line.unwrap().ends_with(error), "{log}");
        assert_eq!(tracked.flags(), "");
    }
}

/// With `--user`, the configuration is opened with that user's rights, and conntrackd still runs as root.
#[apply(trial_with_other_users)]
fn configuration_of_the_user() {
    let setup = setup().with("--user=nobody");
    let pid_file = format!("--pid_file={}", setup.conf_dir.join("pid").display());
    let tracked = tracked(setup.with(pid_file));
    let setup = &tracked.world.setup;
    for directory in [&setup.conf_dir, &setup.state_path] {
        chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let configuration = setup.conf_dir.join("conntrackd.conf");
    fs::set_permissions(&configuration, Permissions::from_mode(0o600)).unwrap();
    tracked.when("-t", "id -u; id -G");
    // The starter's groups are not passed on.
    setgroups(&[Gid::from_raw(NOBODY)]).unwrap();
    let keepwatch = setup.start();
    let line =
        "conntrackd -n: not started: configuration: Permission denied (EACCES), as user 65534\n";
    keepwatch.wait_log(line, 1);
    keepwatch.wait_log(&line.replace("-n", "-t"), 1);
    assert_eq!(tracked.flags(), "");
    drop(keepwatch);
    fs::remove_file(setup.log_file()).unwrap();
    chown(&configuration, Some(NOBODY), None).unwrap();
    let keepwatch = setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(setup.log().matches("conntrackd: 0\n").count(), 2, "{}", setup.log());
    assert_eq!(keepwatch.counter("command_failures"), 0);
    assert!(keepwatch.proc_status("Uid").starts_with("65534"));
}

/// A conntrackd under the control of a hostile configuration gains nothing from being root.
#[apply(trial)]
fn intruder() {
    let setup = setup().with("--enable_conntrackd");
    let directory = setup.directory().display().to_string();
    let bin = setup.directory().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = include_str!("intruder.sh").replace('@', &directory);
    write_program(&bin.join("conntrackd"), &script);
    fs::write(setup.directory().join("secret"), "hidden\n").unwrap();
    fs::write(setup.conf_dir.join("conntrackd.conf"), "to be read\n").unwrap();
    let mut world = World::with(setup);
    world.setup.environment.push(("PATH".into(), bin.into()));
    let keepwatch = world.setup.start();
    keepwatch.wait_log("conntrackd: did its best\n", 2);
    let log = world.setup.log();
    assert_eq!(log.matches("conntrackd: configuration: to be read\n").count(), 2, "{log}");
    assert_eq!(log.matches("conntrackd: did its best\n").count(), 2, "{log}");
    assert!(!log.contains("broken in") && !log.contains("hidden"), "{log}");
    assert!(!world.setup.directory().join("written").exists());
}
