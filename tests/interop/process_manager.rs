//! The wrappers in `cross/neutron`, as root and without rootwrap: how Neutron's L3 agent counts their monitors, and
//! what they set for IPv6 in its place.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use lab::daemon::Setup;
use lab::files::{Directory, write_program};
use lab::rtnl::Rtnl;
use lab::trial::table;
use libtest_mimic::Trial;

use crate::agent_server::python;
use crate::l3_agent::{NAME, cmdline, shipped};
use crate::world::{VIP, add_interface};

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
    let mut setup = Setup::new(bin.path().join(NAME));
    setup.extra = ["--user=0", "--group=0", "--AGENT-root_helper=sudo"].map(Into::into).into();
    setup.expect(&[crate::world::NO_AGENT]);
    let mut command = setup.command();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let output = command.env("PATH", path).output().unwrap();
    let keepwatch = setup.adopt(&output);
    assert_eq!(setup.state(), "backup");
    Rtnl::new().add_address("ha0", VIP);
    keepwatch.wait_state("master");
    assert!(cmdline(keepwatch.pid()).contains(&setup.router));
    assert!(keepwatch.counter("announcements") == 0, "not on the watched interface");
    keepwatch.terminate();
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
