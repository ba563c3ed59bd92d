//! The wrappers in `cross/neutron`, as root and without rootwrap: how Neutron's L3 agent counts their monitors, and
//! what they set for IPv6 in its place.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use keepwatch::wire::arp::{self, Operation};
use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::files::{Directory, write_program};
use lab::namespace::{Netns, Pids};
use lab::rtnl::Rtnl;
use lab::trial::table;
use lab::users::OTHER_USER;
use libtest_mimic::Trial;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::agent_server::python;
use crate::l3_agent::{NAME, cmdline, shipped};
use crate::world::{NO_AGENT, VIP, add_interface, add_other_station, while_repeating};

#[apply(trial)]
fn releases() -> Vec<Trial> {
    const COUNTED: &str = "counted.py";
    const IPV6: &str = "ipv6.py";
    let newer =
        [("ipv6_of_26", (IPV6, "26.0.5", "18-to-28")), ("ipv6_of_29", (IPV6, "29.0.0", "from-29"))];
    // Only `tests/run all` installs their releases.
    let older = [
        ("counted_by_15", (COUNTED, "15.3.4", "up-to-16")),
        ("counted_by_16", (COUNTED, "16.4.2", "up-to-16")),
        ("counted_by_17", (COUNTED, "17.4.1", "17")),
        ("counted_by_21", (COUNTED, "21.2.1", "18-to-28")),
        ("ipv6_of_13", (IPV6, "13.0.7", "up-to-16")),
        ("ipv6_of_17", (IPV6, "17.4.1", "17")),
        ("ipv6_of_21", (IPV6, "21.2.1", "18-to-28")),
    ];
    let older = table(module_path!(), older, in_private).map(|trial| trial.with_ignored_flag(true));
    table(module_path!(), newer, in_private).chain(older).collect()
}

/// The wrapper of the oldest releases, with their options.
#[apply(trial)]
fn before_2021() {
    add_interface(&Rtnl::new(), "ha0");
    let bin = install("up-to-16");
    let mut setup = setup_of(&bin);
    setup.extra = ["--user=0", "--group=0", "--AGENT-root_helper=sudo"].map(Into::into).into();
    let keepwatch = start(&setup);
    assert_eq!(setup.state(), "backup");
    Rtnl::new().add_address("ha0", VIP);
    keepwatch.wait_state("master");
    assert!(cmdline(keepwatch.pid()).contains(&setup.router));
    assert!(keepwatch.counter("announcements") == 0, "not on the watched interface");
    keepwatch.terminate();
}

/// Also where keepalived announces the addresses, as from 18 on.
#[apply(trial)]
fn split_brain_is_named() {
    let wrappers = [
        ("up-to-16", "master", true),
        ("17", "primary", true),
        ("18-to-28", "primary", false),
        ("from-29", "primary", false),
    ];
    for (wrapper, active, announces) in wrappers {
        Netns::new().enter();
        let rtnl = Rtnl::new();
        for name in ["ha0", "qg0"] {
            add_interface(&rtnl, name);
        }
        let bin = install(wrapper);
        let setup = setup_of(&bin);
        setup.expect(&["split brain: "]);
        let keepwatch = start(&setup);
        rtnl.add_address("ha0", VIP);
        keepwatch.wait("the active state", || setup.state() == active);
        rtnl.add_address("qg0", "192.0.2.1/24");
        keepwatch.status();
        let mac = [2, 0, 0, 0, 0, 2];
        let other = add_other_station(&rtnl, VIP);
        let wire = other.run(|| {
            // A link of this host has never had this MAC, so that the claim is another station's at once.
            Rtnl::new().set_mac("ha0-peer", mac);
            Capture::new("ha0-peer")
        });
        wire.send(&arp::announcement(Operation::Request, mac, [169, 254, 0, 5].into()));
        keepwatch.wait_log("split brain: 02:00:00:00:00:02 claims 169.254.0.5 on ha0 ", 1);
        assert_eq!(keepwatch.counter("announcements") > 0, announces, "{wrapper}");
        keepwatch.terminate();
    }
}

/// The agent's user exchanges a directory for a link to one of root's, while the wrapper starts as root by sudo.
#[apply(trial)]
fn directory_exchanged_for_a_link() {
    const STARTS: usize = 40;
    const GROUP: u32 = OTHER_USER + 1;
    add_interface(&Rtnl::new(), "ha0");
    let (bin, theirs, of_root) = (install("18-to-28"), Directory::new(), Directory::new());
    let [directory, link] = &["directory", "link"].map(|name| theirs.path().join(name));
    fs::create_dir(directory).unwrap();
    symlink(of_root.path(), link).unwrap();
    for path in [theirs.path(), directory] {
        chown(path, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    }
    let start = |pids: &Pids, number| {
        let mut command = Command::new(bin.path().join(NAME));
        command.arg(format!("--router_id=r{number}"));
        command.arg(format!("--conf_dir={}", directory.display()));
        command.arg(format!("--pid_file={}/{number}.monitor.pid", directory.display()));
        command.args(["--monitor_interface=ha0", &format!("--monitor_cidr={VIP}")]);
        // As by sudo.
        command.env("SUDO_UID", OTHER_USER.to_string()).env("SUDO_GID", GROUP.to_string());
        pids.run(|| command.output().unwrap()).status.success()
    };
    let pids = Pids::new();
    // Undisturbed, it starts.
    assert!(start(&pids, STARTS));
    let state = fs::metadata(directory.join("state")).unwrap();
    let exchange = || {
        renameat2(AT_FDCWD, directory, AT_FDCWD, link, RenameFlags::RENAME_EXCHANGE).unwrap();
    };
    while_repeating(exchange, || {
        for number in 0..STARTS {
            start(&pids, number);
        }
    });
    let made: Vec<_> =
        fs::read_dir(of_root.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(made.is_empty(), "{made:?}");
    assert_eq!((state.uid(), state.gid()), (OTHER_USER, GROUP));
}

/// Makes a fault, or mends it.
type Act<'a> = &'a dyn Fn();

/// A router's name is in the log, whose lines a shell must not run. The wrapper's own file, and what is above, is root's, and
/// so are the programs that it runs, whatever PATH has come through sudo.
#[apply(trial)]
fn refused_by_the_wrapper() {
    let bin = install("18-to-28");
    let etc = Directory::new();
    let run = |router: &str| {
        let etc = etc.path().display();
        let script = format!(
            "mount --bind {etc} /etc && PATH=/etc:$PATH && exec \"$0\" --router_id=\"$1\" --version"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(bin.path().join(NAME)).arg(router);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    fs::write(etc.path().join("passwd"), passwd).unwrap();
    for name in ["namei", "grep"] {
        write_program(&etc.path().join(name), "#!/bin/sh\n: >/etc/was-run\n");
    }
    assert_eq!(run("r.1:a_b-c"), (Some(0), String::new()));
    for router in ["..", "$(id)", "a;b", "a b", "a\nb", "é", "a/b"] {
        let (code, error) = run(router);
        assert!(code == Some(2) && error.contains("is no router"), "{router}: {error}");
    }
    let directory = etc.path().join("keepwatch");
    let (real, file) = (etc.path().join("real"), directory.join("neutron.conf"));
    fs::create_dir(&directory).unwrap();
    fs::write(&real, "").unwrap();
    symlink("../real", &file).unwrap();
    assert_eq!(run("r1"), (Some(0), String::new()));
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let own = |path: &Path, user| lchown(path, Some(user), None).unwrap();
    let away = etc.path().join("away");
    let faults: [(Act<'_>, Act<'_>); 6] = [
        (&|| fs::rename(&real, &away).unwrap(), &|| fs::rename(&away, &real).unwrap()),
        (&|| own(&directory, OTHER_USER), &|| own(&directory, 0)),
        (&|| mode(&directory, 0o777), &|| mode(&directory, 0o755)),
        (&|| own(&file, OTHER_USER), &|| own(&file, 0)),
        (&|| own(&real, OTHER_USER), &|| own(&real, 0)),
        (&|| mode(&real, 0o664), &|| mode(&real, 0o644)),
    ];
    for (n, (make, mend)) in faults.into_iter().enumerate() {
        make();
        let (code, error) = run("r1");
        assert!(code == Some(2) && error.contains("must be root's"), "{n}: {error}");
        mend();
        assert_eq!(run("r1"), (Some(0), String::new()), "{n}");
    }
    assert!(!etc.path().join("was-run").exists());
}

/// So the hook runs again.
#[apply(trial)]
fn ipv6_that_cannot_be_set_is_a_failure() {
    let script = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$0\" INSTANCE r1 \"$1\" 0";
    for (state, code) in [("MASTER", 1), ("BACKUP", 0)] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", script]).arg(shipped("ipv6")).arg(state);
        assert_eq!(command.output().unwrap().status.code(), Some(code), "{state}");
    }
}

/// Runs a script with a wrapper and a directory, without processes of other tests.
fn in_private((script, release, wrapper): (&str, &str, &str)) {
    let (directory, bin) = (Directory::new(), install(wrapper));
    let python = python(release, script);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(python.get_program()).args(python.get_args());
    let output = command.arg(bin.path().join(NAME)).arg(directory.path()).output();
    assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
}

/// Returns a setup of an installed wrapper, without an agent.
fn setup_of(bin: &Directory) -> Setup {
    let setup = Setup::new(bin.path().join(NAME));
    setup.expect(&[NO_AGENT]);
    setup
}

/// Starts a wrapper with itself in PATH.
fn start(setup: &Setup) -> Running<'_> {
    let bin = setup.program.parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    setup.adopt(&setup.command().env("PATH", path).output().unwrap())
}

/// Installs a wrapper that runs the built keepwatch.
fn install(wrapper: &str) -> Directory {
    let bin = Directory::new();
    let here = bin.path().join("keepwatch-neutron");
    fs::create_dir(&here).unwrap();
    for name in ["options", "ipv6"] {
        fs::copy(shipped(name), here.join(name)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_keepwatch"), here.join(NAME)).unwrap();
    let script = fs::read_to_string(shipped(wrapper)).unwrap();
    let installed = "/usr/local/libexec/keepwatch-neutron";
    assert!(script.contains(installed));
    let script = script.replace(installed, &format!("'{}'", here.display()));
    write_program(&bin.path().join(NAME), &script);
    bin
}
