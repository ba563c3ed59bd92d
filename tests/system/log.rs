//! Promise 19: the log in the formats that log collectors read.

use std::fs;
use std::io::Write;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::agent::Behaviour;
use lab::daemon::send;
use lab::files::{content, look, read_line};
use lab::namespace::mount_tmpfs_with;
use lab::trial::table;
use libtest_mimic::Trial;
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use nix::sys::stat::fstat;

use crate::privileges::setup_of_nobody;
use crate::scripted::helper;
use crate::stdio::without_log_file;
use crate::world::{World, setup};

/// The pattern by which Kolla's fluentd finds the begin of an entry.
const FIRST_LINE: &str =
    r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}.\d{3} \d+ \S+ \S+ \[(req-\S+ \S+ \S+ \S+ \S+ \S+|-)\]";

/// Only for a log of text: frames contain their level, and the journal could not read them.
#[apply(trial)]
fn in_the_journal() -> Vec<Trial> {
    let tests: [(&str, fn()); 3] = [
        ("journal_has_levels", journal_has_levels),
        ("journal_has_levels_beside_a_log_file", journal_has_levels_beside_a_log_file),
        ("failed_start_is_an_error", failed_start_is_an_error),
    ];
    let tests = table(module_path!(), tests, |test| test());
    tests.filter(|_| cfg!(not(feature = "defmt"))).collect()
}

/// `log-lines.txt` has the level of every line, in the order of `src`.
#[apply(trial)]
fn every_line_has_its_level() {
    let code: Vec<String> = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .iter()
        .flat_map(|path| log_statements(&fs::read_to_string(path).unwrap()))
        .collect();
    let expected: Vec<_> = include_str!("log-lines.txt").lines().collect();
    for (code, expected) in code.iter().zip(&expected) {
        assert_eq!(code, expected, "a line of src, and the one in tests/system/log-lines.txt");
    }
    assert_eq!(code.len(), expected.len(), "lines of src, and those in tests/system/log-lines.txt");
}

/// Returns the source files below a directory, sorted by path.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

/// Returns level and text of each log statement.
fn log_statements(code: &str) -> Vec<String> {
    let statement = |(position, bracket): (usize, &str)| {
        let name = |c: char| c.is_alphanumeric() || "_:".contains(c);
        let level = code[..position].rsplit(|c| !name(c)).next().unwrap();
        ["error", "warning", "info", "debug"].contains(&level).then(|| {
            let rest = code[position + bracket.len()..].trim_start();
            let text = rest.strip_prefix('"').and_then(|text| text.split('"').next());
            let text = text.unwrap_or_else(|| panic!("a line without a literal text: {rest}"));
            format!("{:8}{text}", level.to_uppercase())
        })
    };
    code.match_indices("!(").filter_map(statement).collect()
}

#[apply(trial)]
fn lines_are_those_of_oslo_log() {
    let mut world = World::new();
    world.agent.stop(true);
    let keepwatch = world.setup.start();
    keepwatch.wait_log(" WARNING keepwatch [-] ", 1);
    keepwatch.wait_log(" INFO keepwatch [-] ", 1);
    let log = world.setup.log();
    let mut grep = Command::new("grep");
    grep.args(["-vP", FIRST_LINE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut grep = grep.spawn().unwrap();
    grep.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let others = grep.wait_with_output().unwrap();
    assert_eq!(others.status.code(), Some(1), "{}", String::from_utf8_lossy(&others.stdout));
}

/// Lines wait for the reply, but not until it has timed out.
#[apply(trial)]
fn hanging_agent_delays_no_line() {
    let world = World::with(setup().with("--no-announce"));
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_asleep();
    world.agent.behave(Behaviour::Hang);
    world.set_vip(true);
    keepwatch.wait_log("Wrote router", 2);
    assert!(!world.setup.log().contains("timed out"), "{}", world.setup.log());
}

/// Nobody signals the daemon. Root waits for a signal.
#[apply(trial_with_other_users)]
fn renamed_log_file() {
    let world = World::with(setup_of_nobody());
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    let log = world.setup.log_file();
    let earlier = log.with_extension("1");
    fs::rename(&log, &earlier).unwrap();
    look("the log to be opened again", || log.exists());
    world.deliver(true);
    keepwatch.wait_asleep();
    let [earlier, now] = [earlier, log].map(|log| world.setup.log_in(&log));
    assert!(!earlier.contains("master") && now.contains("master"), "{earlier}\n{now}");
}

/// On a full disk a line is cut, and the next one still begins a new line. No empty pid file is left behind.
#[apply(trial)]
fn full_disk() {
    let first = setup();
    let disk = first.directory().join("disk");
    fs::create_dir(&disk).unwrap();
    let resize = |size: &str, flags| mount_tmpfs_with(&disk, flags, size).unwrap();
    resize("size=8k", MsFlags::empty());
    let log = disk.join("log");
    let world = World::with(first.with(format!("--log-file={}", log.display())));
    let keepwatch = world.setup.start();
    let length = || fs::metadata(&log).unwrap().len();
    look("the disk to be full", || {
        keepwatch.signal(Signal::SIGUSR1);
        length() == 8192
    });
    let second = setup().with(format!("--pid_file={}", disk.join("pid").display())).run();
    assert!(String::from_utf8_lossy(&second.stderr).ends_with("(ENOSPC)\n"), "{second:?}");
    assert!(!disk.join("pid").exists());
    resize("size=64k", MsFlags::MS_REMOUNT);
    keepwatch.signal(Signal::SIGUSR1);
    look("a line", || length() > 8192);
    let text = || world.setup.text_of_damaged(fs::read(&log).unwrap());
    look("how much was lost", || text().contains("bytes could not be written and are lost\n"));
    assert!(fs::read(&log).unwrap()[8191..8193].contains(&b'\n'));
    // A line that is cut before a rotation does not concern the new file.
    resize("size=12k", MsFlags::MS_REMOUNT);
    look("the disk to be full again", || {
        keepwatch.signal(Signal::SIGUSR1);
        length() == 12288
    });
    fs::rename(&log, disk.join("log.1")).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    look("a new log", || log.exists());
    resize("size=64k", MsFlags::MS_REMOUNT);
    keepwatch.signal(Signal::SIGUSR1);
    look("a line in it", || length() > 0);
    assert_ne!(fs::read(&log).unwrap()[0], b'\n');
}

/// Returns both ends of a stream like the journal's, and its `JOURNAL_STREAM`.
fn journal() -> (UnixStream, OwnedFd, String) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let file = fstat(theirs.as_fd()).unwrap();
    (ours, theirs.into(), format!("{}:{}", file.st_dev, file.st_ino))
}

fn journal_has_levels() {
    let mut world = World::with(setup().with("--router_id=r1").with("--hook=/bin/true"));
    world.agent.stop(true);
    for is_journal in [true, false] {
        let (ours, theirs, stream) = journal();
        let stream = if is_journal { stream } else { "1:2".into() };
        let mut command = without_log_file(&world.setup);
        let child = command.env("JOURNAL_STREAM", stream).stderr(theirs).spawn().unwrap();
        let keepwatch = world.setup.attend(child);
        for (number, name, text) in [
            ("<6>", "INFO", "Initial status "),
            ("<4>", "WARNING", "agent not notified: "),
            ("<3>", "ERROR", "hook helper gone; "),
        ] {
            if name == "ERROR" {
                send(helper(&keepwatch), Signal::SIGKILL);
            }
            let mut lines = iter::repeat_with(|| read_line(&ours));
            let line = lines.find(|line| line.contains(text)).unwrap();
            assert_eq!(line.starts_with(&format!("{number}r1: ")), is_journal, "{line}");
            assert_eq!(
                line.contains(&format!(" {name} keepwatch [-] r1: ")),
                !is_journal,
                "{line}"
            );
        }
    }
}

/// The lines come to the journal while the log file cannot be reopened.
fn journal_has_levels_beside_a_log_file() {
    let world = World::with(setup().with("--router_id=r1"));
    let (ours, theirs, stream) = journal();
    let mut command = world.setup.command();
    command.arg("--foreground").env("JOURNAL_STREAM", stream).stderr(theirs);
    let keepwatch = world.setup.attend(command.spawn().unwrap());
    keepwatch.wait_log("Notified agent router", 1);
    let log = world.setup.log_file();
    let before = log.with_extension("1");
    fs::rename(&log, &before).unwrap();
    fs::create_dir(&log).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    let line = read_line(&ours);
    assert!(line.starts_with("<4>r1: log file not reopened: Is a directory (EISDIR); "), "{line}");
    keepwatch.signal(Signal::SIGUSR1);
    let line = read_line(&ours);
    assert!(line.starts_with("<6>r1: status: "), "{line}");
    fs::remove_dir(&log).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    keepwatch.wait("another log", || log.exists());
    for line in [
        "WARNING keepwatch [-] r1: log file not reopened: ",
        "INFO keepwatch [-] r1: status: state",
    ] {
        assert_eq!(content(&before).matches(line).count(), 1, "{line}");
    }
}

fn failed_start_is_an_error() {
    let world = World::with(setup().with("--namespace=none"));
    let (ours, theirs, stream) = journal();
    let mut command = without_log_file(&world.setup);
    let status = command.env("JOURNAL_STREAM", stream).stderr(theirs).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let line = read_line(&ours);
    assert!(line.starts_with("<3>keepwatch: namespace "), "{line}");
}
