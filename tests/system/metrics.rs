//! The metrics file: whole, true, in time, and in nobody's way.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lab::daemon::{Running, Setup};
use lab::files::{Watch, content};
use lab::trial::with_other_users;
use lab::users::NOBODY;
use libtest_mimic::Trial;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;

use crate::privileges::setup_of_nobody;
use crate::prometheus::{Sample, parse};
use crate::world::{Killed, World, setup, word};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        figures_follow_the_state,
        odd_router_id_is_escaped,
        reader_sees_whole_files_only,
        two_daemons_share_a_directory,
        nothing_wakes_an_idle_daemon,
        signals_have_it_written,
        failures_of_the_agent_are_told_apart,
        replaced_directory_is_followed,
        full_directory_is_survived,
        unwritable_at_start,
        removed_at_the_end,
        successor_keeps_its_file,
    ];
    trials.extend(with_other_users(lab::trials![nobody_writes_and_removes_it]));
    trials
}

/// A metrics file in a directory of its own.
struct File(PathBuf);

impl File {
    fn of(setup: &Setup) -> Self {
        let directory = setup.directory().join("metrics");
        fs::create_dir(&directory).unwrap();
        Self(directory.join("keepwatch.prom"))
    }

    fn directory(&self) -> &Path {
        self.0.parent().unwrap()
    }

    fn option(&self) -> String {
        format!("--metrics-file={}", self.0.display())
    }

    fn samples(&self) -> Vec<Sample> {
        parse(&content(&self.0)).unwrap()
    }

    /// The value of a metric, of all its samples together.
    fn value(&self, name: &str) -> u64 {
        let samples = self.samples().into_iter();
        let values: Vec<u64> = samples.filter(|s| s.0 == name).map(|s| s.2).collect();
        assert!(!values.is_empty(), "{name}");
        values.iter().sum()
    }

    /// Waits until a metric of the present file has this value.
    fn wait(&self, name: &str, value: u64) {
        let watch = Watch::new(self.directory());
        watch.until(format_args!("{name} {value}"), || {
            (self.0.exists() && self.value(name) == value).then_some(())
        });
    }

    fn inode(&self) -> Option<u64> {
        fs::metadata(&self.0).ok().map(|metadata| metadata.ino())
    }

    /// It is alone in its directory.
    fn assert_alone(&self) {
        let entries = fs::read_dir(self.directory()).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [self.0.as_path()]);
    }
}

/// A world whose daemon is to write metrics.
fn world() -> (World, File) {
    world_with(setup())
}

fn world_with(setup: Setup) -> (World, File) {
    let file = File::of(&setup);
    (World::with(setup.with(file.option())), file)
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn figures_follow_the_state() {
    let (world, file) = world();
    let _keepwatch = world.setup.start();
    file.wait("keepwatch_active", 0);
    assert_eq!(fs::metadata(&file.0).unwrap().mode() & 0o7777, 0o644);
    file.assert_alone();
    for (name, labels, _) in file.samples() {
        let labels: Vec<_> = labels.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let common = [
            ("router_id", &world.setup.router[..]),
            ("interface", "ha0"),
            ("vip", "169.254.0.5/24"),
        ];
        assert_eq!(labels[..3], common, "{name}");
    }
    let before = unix_time();
    for present in [true, false, true] {
        world.set_vip(present);
        world.agent.wait_acknowledged(word(present));
        file.wait("keepwatch_active", present.into());
    }
    let changed = file.value("keepwatch_last_change_timestamp_seconds");
    assert!((before..=unix_time()).contains(&changed), "{changed}");
    assert_eq!(file.value("keepwatch_transitions_total"), 4);
    assert_eq!(file.value("keepwatch_state_file_writes_total"), 4);
    // What the agent has answered meanwhile is written for by itself.
    file.wait("keepwatch_notifications_total", 4);
    assert_eq!(file.value("keepwatch_undelivered"), 0);
    file.assert_alone();
}

fn odd_router_id_is_escaped() {
    let mut odd = setup();
    odd.router = r#"a"b\c\n{x="y"},#@$"#.into();
    let (world, file) = world_with(odd);
    let _keepwatch = world.setup.start();
    file.wait("keepwatch_active", 0);
    for (_, labels, _) in file.samples() {
        assert_eq!(labels[0], ("router_id".into(), world.setup.router.clone()));
    }
}

/// Reads files again and again while something goes on. Each is whole, or not there yet.
fn read_while(files: &[&File], something: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for file in files {
                    if let Ok(text) = fs::read_to_string(&file.0) {
                        let samples = parse(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
                        assert_eq!(
                            samples.last().unwrap().0,
                            "keepwatch_metrics_write_failures_total"
                        );
                    }
                }
            }
        });
        something();
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

fn reader_sees_whole_files_only() {
    let (world, file) = world();
    let keepwatch = world.setup.start();
    read_while(&[&file], || {
        for flip in 0..1000 {
            world.set_vip(flip % 2 == 0);
        }
        keepwatch.wait_log("Wrote router", 1001);
    });
    file.wait("keepwatch_transitions_total", 1001);
    file.assert_alone();
}

/// And their state files are there, too.
fn two_daemons_share_a_directory() {
    let (world, first) = world();
    let second = File(first.directory().join("second.prom"));
    let mut other = setup().with(second.option());
    other.conf_dir.clone_from(&world.setup.conf_dir);
    other.router = "other".into();
    let log = other.directory().join("log");
    let _keepwatch = world.setup.start();
    let log = format!("--log-file={}", log.display());
    let _other = Killed(other.command().arg(log).arg("--foreground").spawn().unwrap());
    second.wait("keepwatch_active", 0);
    read_while(&[&first, &second], || {
        for flip in 0..500 {
            world.set_vip(flip % 2 == 0);
        }
        first.wait("keepwatch_transitions_total", 501);
        second.wait("keepwatch_transitions_total", 501);
    });
    assert_eq!(second.samples()[0].1[0].1, "other");
    assert_eq!(fs::read_dir(first.directory()).unwrap().count(), 2, "nothing is left behind");
}

/// Events of addresses alone are no reason to write it.
fn nothing_wakes_an_idle_daemon() {
    let (world, file) = world_with(setup().with("--debug"));
    let keepwatch = world.setup.start();
    file.wait("keepwatch_notifications_total", 1);
    keepwatch.wait_asleep();
    let (inode, events) = (file.inode(), file.value("keepwatch_netlink_events_total"));
    world.rtnl.add_address("ha0", "192.0.2.1/24");
    keepwatch.wait_log("192.0.2.1", 1);
    keepwatch.wait_asleep();
    assert_eq!(file.inode(), inode, "for an event");
    keepwatch.signal(Signal::SIGUSR1);
    file.wait("keepwatch_netlink_events_total", events + 1);
    keepwatch.wait_asleep();
}

fn signals_have_it_written() {
    let (world, file) = world();
    let keepwatch = world.setup.start();
    file.wait("keepwatch_notifications_total", 1);
    keepwatch.wait_asleep();
    for (signal, writes) in [(Signal::SIGUSR1, 1), (Signal::SIGHUP, 2)] {
        fs::remove_file(&file.0).unwrap();
        keepwatch.signal(signal);
        file.wait("keepwatch_state_file_writes_total", writes);
    }
    keepwatch.wait_log("status: state=backup", 1);
}

fn failures_of_the_agent_are_told_apart() {
    let (mut world, file) = world();
    world.agent.stop(true);
    let keepwatch = world.setup.start();
    keepwatch.wait_log("agent not notified: no socket", 1);
    keepwatch.signal(Signal::SIGUSR1);
    let watch = Watch::new(file.directory());
    let failures = |kind: &str| {
        let samples = file.samples();
        let is_kind = |(_, labels, _): &&Sample| labels.last().is_some_and(|(_, is)| is == kind);
        samples.iter().find(is_kind).unwrap().2
    };
    watch.until("a failure", || (file.0.exists() && failures("no_socket") > 0).then_some(()));
    assert_eq!(failures("refused"), 0);
    assert_eq!(file.value("keepwatch_undelivered"), 1);
}

/// Breaks the directory, changes the state, mends the directory.
fn survives(world: &World, file: &File, why: &str, break_it: impl Fn(), mend_it: impl Fn()) {
    let keepwatch = world.setup.start();
    file.wait("keepwatch_active", 0);
    break_it();
    world.set_vip(true);
    keepwatch.wait_state("master");
    world.agent.wait_acknowledged("master");
    keepwatch.wait_log(&format!("metrics file not written: {why}"), 1);
    mend_it();
    // By itself.
    file.wait("keepwatch_active", 1);
    assert!(file.value("keepwatch_metrics_write_failures_total") > 0);
    assert_eq!(temporaries(file), 0);
    world.set_vip(false);
    file.wait("keepwatch_active", 0);
}

/// How many new files have been left behind.
fn temporaries(file: &File) -> usize {
    let entries = fs::read_dir(file.directory()).unwrap();
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes()[0] == b'.')
        .count()
}

fn replaced_directory_is_followed() {
    let (world, file) = world();
    let aside = world.setup.directory().join("aside");
    let away = || fs::rename(file.directory(), &aside).unwrap();
    survives(&world, &file, "No such file", away, || fs::create_dir(file.directory()).unwrap());
}

fn mount_over(directory: &Path, flags: MsFlags, options: Option<&str>) {
    let none: Option<&str> = None;
    mount(none, directory, Some("tmpfs"), flags, options).unwrap();
}

fn full_directory_is_survived() {
    let (world, file) = world();
    mount_over(file.directory(), MsFlags::empty(), Some("size=64k"));
    let ballast = file.directory().join("ballast");
    let use_up = || {
        let _ = fs::write(&ballast, vec![0; 65536]);
    };
    survives(&world, &file, "No space left", use_up, || fs::remove_file(&ballast).unwrap());
}

/// The one line that it ends with.
fn complaint(setup: &Setup) -> String {
    let log = format!("--log-file={}", setup.directory().join("log").display());
    let output = setup.command().arg(log).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn unwritable_at_start() {
    let setup = setup();
    let file = File::of(&setup);
    mount_over(file.directory(), MsFlags::MS_RDONLY, None);
    let setup = setup.with(file.option());
    let path = file.0.display();
    let error = complaint(&setup);
    let expected = format!("keepwatch: metrics file {path}: Read-only file system (EROFS)\n");
    assert_eq!(error, expected);
    let checked = setup.command().arg("--check").output().unwrap();
    let report = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{report}");
    let line = format!("metrics     {path}: does not work: Read-only file system (EROFS)\n");
    assert!(report.contains(&line), "{report}");
}

fn removed_at_the_end() {
    let (world, file) = world();
    let keepwatch = world.setup.start();
    file.wait("keepwatch_active", 0);
    keepwatch.terminate();
    assert_eq!(fs::read_dir(file.directory()).unwrap().count(), 0);
}

/// Neutron's agent starts the next one while the last is still leaving.
fn successor_keeps_its_file() {
    let (world, file) = world();
    let first = world.setup.start();
    file.wait("keepwatch_active", 0);
    let old = file.inode();
    let other = setup().with(file.option());
    let second: Running<'_> = other.start();
    let watch = Watch::new(file.directory());
    let new = watch.until("another file", || file.inode().filter(|_| file.inode() != old));
    first.terminate();
    assert_eq!(file.inode(), Some(new));
    second.terminate();
    assert_eq!(file.inode(), None);
}

fn nobody_writes_and_removes_it() {
    let (world, file) = world_with(setup_of_nobody());
    // What belongs to root is not for nobody to write.
    let path = file.0.display();
    let error = complaint(&world.setup);
    assert_eq!(error, format!("keepwatch: metrics file {path}: Permission denied (EACCES)\n"));
    chown(file.directory(), Some(NOBODY), None).unwrap();
    let keepwatch = world.setup.start();
    for present in [true, false] {
        world.set_vip(present);
        file.wait("keepwatch_active", present.into());
        assert_eq!(fs::metadata(&file.0).unwrap().uid(), NOBODY);
    }
    keepwatch.terminate();
    assert_eq!(file.inode(), None);
}
