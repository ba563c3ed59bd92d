//! The metrics file: whole, correct, in time, and safe beside other instances.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keepwatch::metrics::{labels, render};
use keepwatch::monitor::{Cause, Counters, HookState, Instant, State, Status, Trouble};
use keepwatch::options::{CliAction, parse};
use keepwatch::wire::ifname::InterfaceName;
use lab::daemon::Setup;
use lab::files::{Directory, Watch, content};
use lab::namespace::mount_tmpfs_with;
use lab::users::NOBODY;
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::mkfifo;

use crate::privileges::setup_of_nobody;
use crate::world::{NO_AGENT, World, setup};

/// Returns the text for a status in which all counters differ, with each trouble once.
pub fn text(router_id: &str, vip: &str) -> String {
    let options = ["--conf_dir=/", "--monitor_interface=a\"\\bcdefghijklm", "--foreground"];
    let own = [format!("--router_id={router_id}"), format!("--monitor_cidr={vip}")];
    let words = options.iter().map(OsString::from).chain(own.iter().map(OsString::from));
    let Ok(CliAction::Run(config)) = parse(words.collect()) else { panic!("{router_id} {vip}") };
    let counters = Counters {
        events: 1,
        transitions: 2,
        overruns: 3,
        malformed: 4,
        dumps: 5,
        dump_failures: 6,
        foreign: 7,
        writes: 8,
        write_failures: 9,
        notifications: 10,
        notification_failures: [20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
        metrics_failures: u64::MAX,
        announcements: 12,
        announcement_failures: 13,
        unannounced: 14,
        ignored_links: 15,
        claims: 16,
        commands: 17,
        command_failures: 18,
        hook_runs: 30,
        hook_failures: 31,
    };
    let (state, undelivered) = (Some(State::Active), Some(State::Active));
    let changed_at = Some(Instant::ZERO);
    let hook_pending = Some(HookState::Fault);
    let cidr = vip.parse().unwrap();
    let down = Trouble::InterfaceDown(Cause::CarrierLost);
    let troubles = [
        Trouble::SplitBrain([2, 0, 0, 0, 0, 2]),
        Trouble::StateFileFails,
        Trouble::StateFileShared,
        Trouble::SpareFails,
        Trouble::InterfaceAbsent,
        down,
        Trouble::Misplaced(InterfaceName::new(b"eth7").unwrap(), cidr),
        Trouble::DuplicateAddress,
        Trouble::KeepalivedGone,
        Trouble::AgentFails,
        Trouble::HookFails,
        Trouble::ConntrackdFails,
        Trouble::LogFails,
    ]
    .map(Some);
    let claimant = Some([2, 0, 0, 0, 0, 2]);
    let listens = true;
    let ifindex = Some(3);
    // Without `..`, the compiler asks for each new field here.
    let status = Status {
        state,
        changed_at,
        ifindex,
        undelivered,
        hook_pending,
        troubles,
        listens,
        claimant,
        counters,
    };
    let labels = labels(config.router_id.as_str(), &config.interface, &config.vip);
    let mut text = String::new();
    render(&mut text, &status, 1_700_000_000, &labels).unwrap();
    text
}

#[apply(trial)]
fn samples_have_labels_and_their_figures() {
    let longest = text(&"\\".repeat(64), "fd00:1234:1234:1234:1234:1234:1234:1234/128");
    assert!(longest.len() < 19_500, "{} bytes; the limit is 20 KiB", longest.len());

    let text = text(r"a.b_c:d-e\f", "fd00::1/64");
    let expected = include_str!("metrics.prom");
    assert_eq!(text, expected.replace("VERSION", env!("CARGO_PKG_VERSION")));
}

#[apply(trial)]
fn manual_page_has_the_metrics() {
    let page = include_str!("../../docs/keepwatch.8");
    let text = text("r1", "::1");
    for (name, help) in
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
    {
        let entry = format!(".It Li {name}\n{help}\n");
        assert!(page.contains(&entry), "docs/keepwatch.8 should have:\n{entry}");
    }
}

/// A metrics file in a directory of its own.
pub struct File(pub PathBuf);

impl File {
    pub fn of(setup: &Setup) -> Self {
        let directory = setup.directory().join("metrics");
        fs::create_dir(&directory).unwrap();
        // The longest possible name.
        Self(directory.join(format!("{}.prom", "m".repeat(250))))
    }

    fn directory(&self) -> &Path {
        self.0.parent().unwrap()
    }

    /// Renames a copy over it, as `sed -i` does.
    fn replace_by_copy(&self) {
        let copy = self.directory().join("copy");
        fs::copy(&self.0, &copy).unwrap();
        fs::rename(&copy, &self.0).unwrap();
    }

    pub fn option(&self) -> String {
        format!("--metrics-file={}", self.0.display())
    }

    /// Returns the value of a metric with one sample.
    pub fn value(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(&self.0).ok()?;
        let sample = format!("keepwatch_{name}{{");
        let line = text.lines().find(|line| line.starts_with(&sample)).expect("the metric");
        Some(line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    /// Waits until a metric has this value.
    pub fn wait(&self, name: &str, value: u64) {
        let watch = Watch::new(self.directory());
        let is_there = || (self.value(name) == Some(value)).then_some(());
        watch.until(format_args!("{name} {value}"), is_there);
    }

    fn inode(&self) -> Option<u64> {
        fs::metadata(&self.0).ok().map(|metadata| metadata.ino())
    }

    /// Returns the number of other files in its directory.
    fn others(&self) -> usize {
        let entries = fs::read_dir(self.directory()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path() != self.0).count()
    }
}

/// Returns a world whose daemon writes metrics.
pub fn world_with(setup: Setup) -> (World, File) {
    let file = File::of(&setup);
    (World::with(setup.with(file.option())), file)
}

/// The time survives two restarts, of which the first writes the state file anew. A change between them is a new time.
#[apply(trial)]
fn last_change_outlives_a_restart() {
    let (world, file) = world_with(setup());
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_001);
    fs::write(world.setup.state_file(), "backup").unwrap();
    fs::File::open(world.setup.state_file()).unwrap().set_modified(long_ago).unwrap();
    for _ in 0..2 {
        let keepwatch = world.setup.spawn();
        file.wait("notifications_total", 1);
        assert_eq!(file.value("last_change_timestamp_seconds"), Some(1_000_000_001));
        keepwatch.terminate();
    }
    let before = unix_time();
    world.set_vip(true);
    let keepwatch = world.setup.spawn();
    file.wait("active", 1);
    assert!(file.value("last_change_timestamp_seconds") >= Some(before));
    world.deliver(false);
    file.wait("active", 0);
    assert!(file.value("last_change_timestamp_seconds") >= Some(before));
    keepwatch.terminate();
}

/// To set the clock to the time that it has is an event, too. Both files are as if they had been written before it.
#[apply(trial_with_other_users)]
fn times_follow_the_wall_clock() {
    let (world, file) = world_with(setup());
    let keepwatch = world.setup.start();
    file.wait("notifications_total", 1);
    let changed_at = file.value("last_change_timestamp_seconds").unwrap();
    let state = fs::File::options().write(true).open(world.setup.state_file()).unwrap();
    state.set_modified(UNIX_EPOCH + Duration::from_secs(7)).unwrap();
    let written = file.inode();
    clock_settime(ClockId::CLOCK_REALTIME, clock_gettime(ClockId::CLOCK_REALTIME).unwrap())
        .unwrap();
    Watch::new(file.directory()).until("new metrics", || (file.inode() != written).then_some(()));
    assert_eq!(file.value("last_change_timestamp_seconds"), Some(changed_at));
    let modified = state.metadata().unwrap().modified().unwrap();
    assert_eq!(modified, UNIX_EPOCH + Duration::from_secs(changed_at));
    keepwatch.terminate();
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Without room for another file the old figures are removed, those of a killed predecessor, too, and the new ones take
/// their room. Without an inode they cannot.
#[apply(trial)]
fn full_disk() {
    let (world, file) = world_with(setup());
    mount_tmpfs_with(file.directory(), MsFlags::empty(), "size=64k,nr_inodes=16,mode=755").unwrap();
    let watch = Watch::new(file.directory());
    let ballast = file.directory().join("ballast");
    let gone = || file.inode().is_none().then_some(());
    fs::write(&file.0, "of a predecessor").unwrap();
    let _ = fs::write(&ballast, vec![0; 65536]);
    let keepwatch = world.setup.start();
    watch.until("no figures of a predecessor", gone);
    keepwatch.wait_log("metrics file not written: No space left on device", 1);
    fs::remove_file(&ballast).unwrap();
    // Writes the figures at once.
    keepwatch.signal(Signal::SIGUSR1);
    file.wait("active", 0);
    assert!(file.value("metrics_write_failures_total") > Some(0));
    let _ = fs::write(&ballast, vec![0; 65536]);
    world.deliver(true);
    file.wait("active", 1);
    // A write takes one inode more for a moment, which would be free again.
    keepwatch.wait_asleep();
    let names = (0..16).map(|n| file.directory().join(n.to_string()));
    let files: Vec<_> = names.take_while(|name| fs::write(name, "").is_ok()).collect();
    world.deliver(false);
    keepwatch.wait_log("metrics file not written: No space left on device", 1);
    watch.until("no old figures", gone);
    for file in files {
        fs::remove_file(file).unwrap();
    }
    // The figures come back by themselves, with the next check of the files at the latest.
    file.wait("active", 0);
}

/// By a second daemon that was started with the same path, for instance, and has ended.
#[apply(trial)]
fn file_that_another_process_removes() {
    let (world, file) = world_with(setup());
    let _keepwatch = world.setup.start();
    file.wait("notifications_total", 1);
    fs::remove_file(&file.0).unwrap();
    file.wait("notifications_total", 1);
}

/// It is not taken for a file of another instance.
#[apply(trial_with_other_users)]
fn file_that_root_replaces() {
    let (world, file) = world_with(setup_of_nobody());
    chown(file.directory(), Some(NOBODY), None).unwrap();
    let _keepwatch = world.setup.start();
    file.wait("notifications_total", 1);
    file.replace_by_copy();
    world.deliver(true);
    file.wait("active", 1);
}

/// A device there, such as `/dev/null`, would be taken from the whole machine.
#[apply(trial)]
fn special_file_is_refused() {
    let (world, file) = world_with(setup());
    mkfifo(&file.0, Mode::S_IRWXU).unwrap();
    let line = format!("metrics file {}: not a regular file", file.0.display());
    assert!(world.setup.check().1.contains(&line));
    let output = world.setup.command().output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains(&line));
    assert!(!output.status.success() && file.0.symlink_metadata().unwrap().file_type().is_fifo());
}

/// Neutron's agent starts a successor while the predecessor is still exiting.
#[apply(trial)]
fn successor_keeps_its_file() {
    let (world, file) = world_with(setup());
    let first = world.setup.start();
    // Its last write without a further event.
    file.wait("notifications_total", 1);
    let other = setup().with(file.option());
    other.expect(&[NO_AGENT]);
    let second = other.start();
    // Only the second daemon has no agent.
    let is_the_second_ones = || content(&file.0).contains("agent not notified");
    let watch = Watch::new(file.directory());
    watch.until("another file", || is_the_second_ones().then_some(()));
    first.signal(Signal::SIGUSR1);
    first.wait_log("metrics file not written: in use by another instance", 1);
    // It does not poll for the end of the successor.
    first.wait_asleep();
    first.terminate();
    assert!(is_the_second_ones());
    second.terminate();
    assert_eq!((file.inode(), file.others()), (None, 0));
}

/// The daemon replaces a file whose writer has ended, or which an operator has edited.
#[apply(trial)]
fn abandoned_file_is_taken_back() {
    let (world, file) = world_with(setup());
    let first = world.setup.start();
    file.wait("notifications_total", 1);
    let (old, other) = (file.inode(), setup().with(file.option()));
    other.expect(&[NO_AGENT]);
    let second = other.start();
    Watch::new(file.directory()).until("another file", || (file.inode() != old).then_some(()));
    second.signal(Signal::SIGKILL);
    second.wait_exit();
    world.deliver(true);
    file.wait("active", 1);
    file.replace_by_copy();
    world.deliver(false);
    file.wait("active", 0);
    assert!(!world.setup.log().contains("replaced by another"));
    first.terminate();
    assert_eq!(file.inode(), None);
}

/// Landlock must allow the daemon a directory that does not exist yet.
#[apply(trial)]
fn directory_comes_later() {
    comes_later(setup(), 0);
}

#[apply(trial_with_other_users)]
fn directory_comes_later_for_nobody() {
    comes_later(setup_of_nobody(), NOBODY);
}

/// The user of the daemon writes and removes the file.
fn comes_later(setup: Setup, user: u32) {
    // Outside the directory that the daemon may write to anyway.
    let above = Directory::new();
    let file = File(above.path().join("missing/metrics/m.prom"));
    let world = World::with(setup.with(file.option()));
    let (_, report) = world.setup.check();
    let missing = "No such file or directory (ENOENT); would be retried";
    assert!(report.contains(&format!("metrics     {}: {missing}\n", file.0.display())), "{report}");
    let keepwatch = world.setup.start();
    keepwatch.wait_log("metrics file not written: No such file or directory", 1);
    fs::create_dir_all(file.directory()).unwrap();
    chown(file.directory(), Some(user), None).unwrap();
    keepwatch.signal(Signal::SIGUSR1);
    file.wait("active", 0);
    let written = fs::metadata(&file.0).unwrap();
    assert_eq!((written.uid(), written.mode() & 0o7777), (user, 0o644));
    keepwatch.terminate();
    assert_eq!(file.inode(), None);
}
