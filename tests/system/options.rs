//! Every bad option: exit code 2 and one line that names it, its value and what was expected.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use lab::agent::Agent;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;

use crate::world::{add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![bad_options, missing_options, not_text, help_and_version, every_style_of_caller]
}

/// Runs it and returns the one line on standard error.
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.matches('\n').count(), 1, "{error}");
    error.strip_prefix("keepwatch: ").expect("its name first").trim_end().into()
}

fn bad_options() {
    let cidr = "an IPv4 or IPv6 address with its prefix length, such as 169.254.0.5/24";
    let identity = "1 to 64 printable ASCII characters without space";
    let path = "the directory of the agent's socket, whose path has at most 107 bytes";
    let hook = "an existing program that may be run";
    let long = "r".repeat(65);
    let deep = format!("/{}", "d".repeat(85));
    let cases = [
        ("--monitor_cidr", "", cidr),
        ("--monitor_cidr", "169.254.0.5/33", cidr),
        ("--monitor_cidr", "169.254.0/24", cidr),
        ("--monitor_cidr", "example.org", cidr),
        ("--monitor_cidr", "0.0.0.0/0", cidr),
        ("--monitor_cidr", "ff02::1/128", cidr),
        ("--monitor_cidr", "fe80::1%eth0/64", cidr),
        ("--router_id", "", identity),
        ("--router_id", "two words", identity),
        ("--router_id", "é", identity),
        ("--router_id", &long, identity),
        ("--monitor_interface", "", "an interface name of 1 to 15 bytes"),
        ("--monitor_interface", "a/b", "an interface name of 1 to 15 bytes"),
        ("--monitor_interface", "0123456789abcdef", "an interface name of 1 to 15 bytes"),
        ("--conf_dir", "/nowhere", "an existing directory"),
        ("--conf_dir", "/dev/null", "an existing directory"),
        ("--state_path", &deep, path),
        ("--namespace", "a/b", "the name of a network namespace or an absolute path"),
        ("--namespace", "..", "the name of a network namespace or an absolute path"),
        ("--pid_file", "", "a path"),
        ("--metrics-file", "", "a file in an existing directory"),
        ("--metrics-file", "/nowhere/x.prom", "a file in an existing directory"),
        ("--metrics-file", "/tmp", "a file in an existing directory"),
        ("--metrics-file", "/", "a file in an existing directory"),
        ("--metrics-file", "/tmp/..", "a file in an existing directory"),
        ("--active-word", "leader", "master or primary"),
        ("--hook", "/nowhere", hook),
        ("--hook", "/usr/bin", hook),
        ("--hook", "/etc/passwd", hook),
        ("--hook", "", hook),
        ("--hook-timeout", "0", "seconds from 0.1 to 3600"),
        ("--hook-user", "nobody here", "the name or number of a user"),
        ("--conntrackd-conf", "", "a path"),
        ("--netlink-rcvbuf", "many", "a number of bytes from 1 to 1073741823"),
        ("--netlink-rcvbuf", "-1", "a number of bytes from 1 to 1073741823"),
        ("--netlink-rcvbuf", "1073741824", "a number of bytes from 1 to 1073741823"),
    ];
    for (option, value, expected) in cases {
        let setup = setup().with(format!("{option}={value}"));
        assert_eq!(
            complaint(&mut setup.command()),
            format!("Error parsing option '{option}' with value '{value}': expected {expected}")
        );
        assert!(!setup.log_file().exists() && !setup.pid_file().exists());
    }
    let hostile = setup().with("--router_id=a\r\nX-Evil: 1");
    let error = complaint(&mut hostile.command());
    assert!(error.contains(r"'--router_id' with value 'a\r\nX-Evil: 1': expected "), "{error}");
    for (word, expected) in [
        ("--frobnicate", "Unrecognized argument: --frobnicate"),
        ("--foreground=yes", "Option takes no value: --foreground=yes"),
        ("--user", "No value given for option: --user"),
        ("--hook-user=root", "Missing required option --hook, as --hook-user is given"),
    ] {
        assert_eq!(complaint(&mut setup().with(word).command()), expected);
    }
}

fn missing_options() {
    let setup = setup();
    for option in ["--router_id", "--conf_dir", "--monitor_interface", "--monitor_cidr"] {
        let mut command = Command::new(setup.command().get_program());
        let given = setup.command();
        command.args(given.get_args().filter(|arg| !arg.as_bytes().starts_with(option.as_bytes())));
        let error = complaint(&mut command);
        // And what is wanted.
        assert!(error.starts_with(&format!("Missing required option {option}: ")), "{error}");
    }
    let mut command = Command::new(setup.command().get_program());
    let given = setup.command();
    command.args(given.get_args().filter(|arg| !arg.as_bytes().starts_with(b"--pid_file")));
    let error = complaint(&mut command);
    assert_eq!(error, "Missing required option --pid_file or --foreground");
}

fn not_text() {
    let setup = setup().with(std::ffi::OsStr::from_bytes(b"--user=\xff"));
    assert_eq!(complaint(&mut setup.command()), "Not UTF-8: --user=\u{fffd}");
}

fn help_and_version() {
    for (option, begins) in [
        ("--help", "Usage: keepwatch --router_id ID"),
        ("-h", "Usage: "),
        ("-v", "keepwatch "),
        ("-V", "keepwatch "),
        ("--version", concat!("keepwatch ", env!("CARGO_PKG_VERSION"), "\n")),
    ] {
        let mut command = Command::new(setup().command().get_program());
        let output = command.arg(option).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8(output.stdout).unwrap().starts_with(begins));
    }
}

/// The command lines of the three generations, with everything that their callers pass.
fn every_style_of_caller() {
    let rtnl = Rtnl::new();
    add_interface(&rtnl, "ha0");
    let ignored =
        ["--AGENT-root_helper=sudo neutron-rootwrap /etc/neutron/rootwrap.conf", "--nodebug"];
    for equals in [true, false] {
        let setup = setup();
        let agent = Agent::start(&setup.state_path);
        let mut command = Command::new(setup.command().get_program());
        for arg in setup.command().get_args() {
            let (name, value) = arg.to_str().unwrap().split_once('=').unwrap();
            if equals {
                command.arg(arg);
            } else {
                command.args([name.replace('_', "-"), value.to_string()]);
            }
        }
        let output =
            command.args(ignored).args(["--config-file", "/etc/neutron/x"]).output().unwrap();
        let _keepwatch = setup.adopt(&output);
        agent.wait_acknowledged("backup");
    }
}
