//! The command line: its meaning, and one line and exit code 2 for each mistake.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use argh::ArgsInfo;
use keepwatch::monitor::{Duration, RENOTIFY};
use keepwatch::options::{CliAction, Config, parse};
use keepwatch::start::privileges::RunAs;
use lab::files::Directory;
use lab::namespace::mount_over;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};

use crate::world::setup;

/// Parses the shortest command line with these options.
fn config(options: &[&str]) -> Result<Box<Config>, String> {
    let shortest = [
        "--router_id=r1",
        "--conf_dir=/",
        "--monitor_interface=ha0",
        "--monitor_cidr=169.254.0.5/24",
        "--state_path=/run/agent",
        "--pid_file=/run/pid",
    ];
    match parse(shortest.iter().chain(options).map(OsString::from).collect())? {
        CliAction::Run(config) | CliAction::Check(config) => Ok(config),
        other => panic!("{other:?}"),
    }
}

#[apply(trial)]
fn values_that_are_refused() {
    let possible = "a unicast address";
    let [absent_program, no_such_program] = ["/nowhere", "nosuchprogram"].map(|name| {
        format!("an existing program that may be run: {name}: No such file or directory (ENOENT)")
    });
    let quotes = "a command line without NUL whose quotes are closed";
    let variable = "the name of an environment variable: letters, digits and _";
    let bytes = "a number of bytes from 1 to 1073741823";
    let cases = [
        ("--monitor_cidr", "0.0.0.0/0", possible),
        ("--monitor_cidr", "ff02::1/128", possible),
        ("--conf_dir", "--help", "an existing directory"),
        ("--pid_file", "", "a path"),
        ("--metrics-file", "", "a file"),
        ("--hook", "/nowhere MASTER", &*absent_program),
        ("--notify-master", "/bin/true 'MASTER", quotes),
        ("--notify-fault", "nosuchprogram FAULT", &no_such_program),
        ("--hook-env", "A=b", variable),
        ("--hook-env", "1A", variable),
        ("--hook-delay", "3601", "seconds from 0 to 3600"),
        ("--hook-timeout", "0.099999", "seconds from 0.1 to 3600"),
        ("--garp_interval", "3600.000001", "seconds from 0 to 3600"),
        ("--garp_interval", "-1", "seconds from 0 to 3600"),
        ("--garp_interval", "1.", "seconds from 0 to 3600"),
        ("--garp_interval", "0.0000001", "seconds from 0 to 3600"),
        ("--garp_master_repeat", "101", "a number from 1 to 100"),
        ("--probe", "3601", "a number of seconds from 0 to 3600"),
        ("--hook-user", "nobody here", "the name or number of a user"),
        ("--user", "4294967295", "the name or number of a user"),
        ("--group", "-1", "the name or number of a group"),
        ("--conntrackd-conf", "", "a path"),
        ("--netlink-rcvbuf", "-1", bytes),
        ("--netlink-rcvbuf", "1073741824", bytes),
    ];
    for (option, value, expected) in cases {
        let error =
            format!("Error parsing option '{option}' with value '{value}': expected {expected}");
        for words in [&[&format!("{option}={value}")[..]][..], &[option, value]] {
            assert_eq!(config(words).unwrap_err(), error);
        }
    }
    let error = config(&["--router_id=a\r\nX-Evil: 1"]).unwrap_err();
    assert!(error.contains(r"'--router_id' with value 'a\r\nX-Evil: 1': expected "), "{error}");
}

#[apply(trial)]
fn help_and_version() {
    let print = |option: &str| {
        let mut command = Command::new(setup().command().get_program());
        let output = command.arg(option).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    for option in ["-v", "-V", "--version"] {
        assert_eq!(print(option), concat!("keepwatch ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    // For `--list`, 1 would mean that something waits.
    for (option, code) in [("--help", 1), ("--list", 3)] {
        let mut command = Command::new(setup().command().get_program());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.arg(option).stdout(full).output().unwrap();
        let error = "keepwatch: standard output: No space left on device (ENOSPC)\n";
        assert_eq!((output.status.code(), &*output.stderr), (Some(code), error.as_bytes()));
    }
    let help = print("--help");
    assert_eq!(print("-h"), help);
    assert!(help.starts_with("Usage: keepwatch --router_id ID"), "{help}");
    // bash-completion takes the first word of a line for an option if it begins with dashes.
    assert!(!help.contains("\n      -"), "{help}");
    let with_dashes = help.replace('_', "-");
    for flag in Config::get_args_info().flags {
        assert!(with_dashes.contains(&format!("\n  {}", flag.long)), "{help}");
    }
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
}

#[apply(trial)]
fn defaults_are_those_that_help_gives() {
    let shortest = format!("{:?}", config(&[]).unwrap());
    let mut with_default = 0;
    for flag in Config::get_args_info().flags {
        let Some((_, default)) = flag.description.rsplit_once("default: ") else { continue };
        // Some defaults are in words.
        if default.contains(' ') {
            continue;
        }
        let given = config(&[&format!("{}={default}", flag.long)]).unwrap();
        assert_eq!(format!("{given:?}"), shortest, "{}", flag.long);
        with_default += 1;
    }
    assert_eq!(with_default, 8);
}

#[apply(trial)]
fn same_meaning_in_other_words() {
    let cases: [(&[&str], &[&str]); 20] = [
        (&["--log_dir=/a=b_c"], &["--log-dir", "/a=b_c"]),
        (&["--user=7", "--user=0"], &["--user=0"]),
        (&["--router_id", "--debug"], &["--router_id=--debug"]),
        (&["--debug", "--nodebug"], &[]),
        (&["--debug", "--no_debug", "--nouse-syslog"], &[]),
        (&["--nodebug", "-d"], &["--debug"]),
        (&["--notify=/bin/true", "--no-notify"], &[]),
        (&["--notify=/bin/true", "--nonotify"], &[]),
        (&["--probe=10", "--no-probe"], &[]),
        (&["--probe=10", "--probe=0"], &[]),
        (&["--no-probe", "--probe=10"], &["--probe=10"]),
        (&["--no-announce", "--announce"], &[]),
        (&["--metrics-file=/m", "--no-metrics-file"], &[]),
        (&["--hook=/bin/true", "--no_hook", "--garp_interval=1", "--no-garp_interval"], &[]),
        (&["--hook-env=A", "--hook-env=B", "--no-hook-env", "--hook-env=C"], &["--hook-env=C"]),
        (&["--probe=10", "--no-detect-split-brain"], &["--no-detect-split-brain"]),
        (&["--no-detect-split-brain", "--probe=10"], &["--probe=10"]),
        (&["--AGENT-root_helper_daemon", "--help"], &[]),
        (&["--AGENT-root_helper=sudo neutron-rootwrap /etc/neutron/rootwrap.conf"], &[]),
        (&["--config-file", "/a", "--config-file=/b", "--config_dir", "/c"], &[]),
    ];
    for (words, others) in cases {
        let meaning = |words| format!("{:?}", config(words).unwrap());
        assert_eq!(meaning(words), meaning(others), "{words:?}");
    }
    assert_eq!(config(&["--garp_interval=0.001"]).unwrap().garp_interval.total_micros(), 1000);
}

#[apply(trial)]
fn detection_is_switched_off() {
    let detects = |options: &[&str]| config(options).unwrap().detect_split_brain;
    assert!(detects(&[]) && !detects(&["--no-announce"]));
    assert!(!detects(&["--no-detect-split-brain"]));
    assert!(!detects(&["--no-announce", "--probe=10", "--no-detect-split-brain"]));
    assert!(!detects(&["--no-detect-split-brain", "--probe=0"]));
    assert!(detects(&["--no-announce", "--no-detect-split-brain", "--probe=10"]));
}

#[apply(trial)]
fn where_the_log_goes() {
    let default = "/neutron-keepalived-state-change.log";
    let cases: [(&[&str], Option<&str>); 7] = [
        (&[], Some(default)),
        (&["--foreground"], None),
        (&["--use-syslog"], None),
        (&["--use-syslog", "--log-file=/var/log/x"], Some("/var/log/x")),
        (&["--foreground", "--log-file=/var/log/x"], Some("/var/log/x")),
        (&["--log-dir=/var/log", "--log-file=x"], Some("/var/log/x")),
        (&["--log-dir=/"], Some(default)),
    ];
    for (options, expected) in cases {
        if cfg!(feature = "defmt") && options.contains(&"--use-syslog") {
            assert!(config(options).is_err());
            continue;
        }
        assert_eq!(config(options).unwrap().log_file, expected.map(PathBuf::from), "{options:?}");
    }
}

#[apply(trial)]
fn paths() {
    let namespace = |option| config(&[option]).unwrap().namespace;
    assert_eq!(namespace("--namespace=qrouter-1"), Some("/run/netns/qrouter-1".into()));
    assert_eq!(namespace("--namespace=/proc/1/ns/net"), Some("/proc/1/ns/net".into()));
    // The longest path. One byte more is among the mistakes.
    let directory = format!("/{}", "d".repeat(82));
    let socket = config(&[&format!("--state_path={directory}")]).unwrap().agent_socket;
    assert_eq!(socket.unwrap().as_os_str().len(), 107);
}

fn numbers(RunAs { user, group }: RunAs) -> (Option<u32>, Option<u32>) {
    (user.map(Uid::as_raw), group.map(Gid::as_raw))
}

#[apply(trial)]
fn users_and_groups() {
    let daemon = |options: &[&str]| numbers(config(options).unwrap().run_as());
    assert_eq!(daemon(&[]), (None, None));
    assert_eq!(daemon(&["--user=root"]), (Some(0), Some(0)), "with the group of the user");
    assert_eq!(daemon(&["--user=0", "--group=12"]), (Some(0), Some(12)));
    assert_eq!(daemon(&["--group=root"]), (None, Some(0)));

    let hook = |options: &[&str]| {
        let options = [&["--hook=/proc/self/exe"], options].concat();
        numbers(config(&options).unwrap().run_hook_as())
    };
    assert_eq!(hook(&[]), (None, None));
    assert_eq!(hook(&["--user=7", "--group=8"]), (Some(7), Some(8)));
    assert_eq!(hook(&["--user=123456789", "--group=8", "--hook-user=root"]), (Some(0), Some(0)));
    assert_eq!(hook(&["--hook-user=123456789", "--group=8"]), (Some(123_456_789), Some(8)));
}

/// A search that fails is not taken for a missing entry. A thread of its own gets an `/etc/passwd` of its own.
#[apply(trial)]
fn failed_search_for_a_user() {
    thread::spawn(search_for_a_user).join().unwrap();
}

fn search_for_a_user() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let setup = || setup().with("--hook=/bin/true").with("--group=7");
    let directory = Directory::new();
    let [socket, files] = ["socket", "files"].map(|name| directory.path().join(name));
    let _unreadable = UnixListener::bind(&socket).unwrap();
    fs::write(&files, "passwd: files\ngroup: files\n").unwrap();
    for (path, at) in [(&socket, "/etc/passwd"), (&files, "/etc/nsswitch.conf")] {
        mount_over(Path::new(at), path).unwrap();
    }
    let errno = "No such device or address (ENXIO)";
    let user = |user| format!("'{user}': expected the name or number of a user: {errno}\n");
    for (setup, code, error) in [
        (setup().with("--user=lp"), 2, user("lp")),
        (setup().with("--user=7"), 2, user("7")),
        (setup(), 1, format!(": groups of its user: {errno}\n")),
    ] {
        let (found, report) = setup.check();
        assert!(found == Some(code) && report.ends_with(&error), "{report}");
    }
}

/// keepalived's name for the option works, too, and finds programs in the usual directories.
#[apply(trial)]
fn hook_is_a_command_line() {
    let options =
        ["--notify=true 'two words'", "--notify_fault=/bin/true 1", "--hook-env=A", "--hook-env=B"];
    let config = config(&options).unwrap();
    let words: Vec<_> = config
        .hooks()
        .map(|hook| (hook.program.to_str().unwrap(), hook.arguments.join(OsStr::new("|"))))
        .collect();
    assert_eq!(words, [("/bin/true", "1".into()), ("/usr/bin/true", "two words".into())]);
    assert_eq!(config.hook_env, ["A", "B"]);
}

#[apply(trial)]
fn renotifications_are_ascending_seconds() {
    let seconds = |option: &[&str]| {
        let times = config(option).map(|config| config.renotify);
        times.map(|times| times.iter().map(Duration::secs).collect::<Vec<_>>())
    };
    assert_eq!(seconds(&[]).unwrap(), RENOTIFY);
    assert_eq!(seconds(&["--renotify=0"]).unwrap(), [0; 0]);
    assert_eq!(
        seconds(&["--renotify=1,2,3,4,5,6,7,8,86400"]).unwrap(),
        [1, 2, 3, 4, 5, 6, 7, 8, 86_400]
    );
    for wrong in
        ["", "0,1", "2,1", "1,1", "1,", "-1", "86401", "1,2,3,4,5,6,7,8,9,10", "1.5", "1 2"]
    {
        assert!(seconds(&[&format!("--renotify={wrong}")]).is_err(), "{wrong}");
    }
}

/// Each mistake with its complete output, and no file. Read it by eye when it changes.
#[apply(trial_with_other_users)]
fn mistakes() {
    let golden = include_str!("mistakes.txt");
    let mut text = String::new();
    for command in golden.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let setup = setup();
        let directory = setup.directory();
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/system/mistakes.sh");
        let mut shell = Command::new("sh");
        shell.arg(script).arg(&setup.program).arg(command).current_dir(directory);
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{command}: standard output");
        assert!(!directory.join("state").exists(), "{command}: a state file");
        let printed = String::from_utf8(output.stderr).unwrap();
        let printed = printed.replace(directory.to_str().unwrap(), "DIR");
        let code = output.status.code().expect("no signal");
        text.extend(["$ ", command, "\n", &printed, "exit code ", &code.to_string(), "\n\n"]);
    }
    assert_eq!(text.trim_end(), golden.trim_end(), "now it is:\n{text}");
}
