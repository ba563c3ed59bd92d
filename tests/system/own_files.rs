//! Promise 15, and the log: the daemon refuses files that other users may have made, and gives away no file of root's.

use std::fs::{self, File, Permissions, create_dir, hard_link};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::daemon::Setup;
use lab::files::{Directory, content, look, read_line};
use lab::namespace::{mount_over, mount_tmpfs, mount_tmpfs_with};
use lab::users::{NOBODY, OTHER_USER, has_others};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::privileges::setup_of_nobody;
use crate::world::{World, setup};

/// A process and its child, which both hold a lock on a file.
struct Lock(Child);

impl Lock {
    fn take(path: &Path, user: u32) -> Self {
        let mut command = Command::new("flock");
        command.arg(path).args(["sh", "-c", "echo locked; exec sleep 1000"]).uid(user);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().expect("flock");
        assert_eq!(read_line(child.stdout.as_mut().unwrap()), "locked\n");
        Self(child)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Asserts that the daemon does not start, with one of these errors, and that `--check` reports it, too.
fn assert_refused(setup: &Setup, what: &str, path: &Path, errors: &[&str]) {
    let output = setup.run();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{output:?}");
    let printed = String::from_utf8(output.stderr).unwrap();
    let line = |error: &&str| format!("keepwatch: {what} {}: {error}\n", path.display());
    assert!(errors.iter().any(|error| printed == line(error)), "{printed}");
    let (code, report) = setup.check();
    assert!(report.ends_with(&printed) && code == Some(1), "{report}");
}

fn both(setup: &Setup) -> [(&'static str, PathBuf); 2] {
    [("pid file", setup.pid_file()), ("log file", setup.log_file())]
}

#[apply(trial)]
fn strange_files_are_refused() {
    type Make = fn(&Path, &Path) -> io::Result<()>;
    let kinds: [(Make, &[&str]); 4] = [
        (|precious, path| hard_link(precious, path), &["has several hard links (EMLINK)"]),
        (|precious, path| symlink(precious, path), &["a symlink, which is not followed (ELOOP)"]),
        (|_, path| Ok(mkfifo(path, Mode::S_IRWXU)?), &["not a regular file"]),
        (|_, path| create_dir(path), &["Is a directory (EISDIR)"]),
    ];
    let setup = setup();
    let precious = setup.directory().join("precious");
    fs::write(&precious, "precious").unwrap();
    for (what, path) in both(&setup) {
        for (make, errors) in kinds {
            make(&precious, &path).unwrap();
            assert_refused(&setup, what, &path, errors);
            assert_eq!(content(&precious), "precious");
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        }
    }
    // One of these is replaced, whatever it is, but no directory is removed for it.
    create_dir(setup.state_file()).unwrap();
    assert_refused(&setup, "state file", &setup.state_file(), &["Is a directory (EISDIR)"]);
    fs::remove_dir(setup.state_file()).unwrap();
    let path = setup.directory().join("nowhere/log");
    let setup = setup.with(format!("--log-file={}", path.display()));
    assert_refused(&setup, "log file", &path, &["No such file or directory (ENOENT)"]);
    assert!(!setup.pid_file().exists(), "the pid file is left behind");
}

#[apply(trial_with_other_users)]
fn file_of_another_user() {
    let setup = setup();
    for (what, path) in both(&setup) {
        fs::write(&path, "precious").unwrap();
        chown(&path, Some(OTHER_USER), None).unwrap();
        assert_refused(&setup, what, &path, &["belongs to user 12345"]);
        assert_eq!(content(&path), "precious");
        fs::remove_file(path).unwrap();
    }
}

/// The error names the process that holds the lock, even if it has exited and only its child holds the lock.
#[apply(trial)]
fn locked_pid_file() {
    let setup = setup();
    let path = setup.pid_file();
    fs::write(&path, "\x1b[31m").unwrap();
    let mut lock = Lock::take(&path, if has_others() { OTHER_USER } else { 0 });
    let pid = lock.0.id();
    let assert_held = |holder: &str| {
        let output = setup.run();
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("keepwatch: pid file {}: held by {holder}\n", path.display());
        assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
        assert_eq!(content(&path), "\x1b[31m");
    };
    assert_held(&format!("process {pid} (flock)"));
    let in_foreground = setup.command().arg("--foreground").output().unwrap().status;
    assert_eq!(in_foreground.code(), Some(1), "no permanent error, as the process may end");
    let (code, report) = setup.check();
    assert!(code == Some(1) && report.ends_with(" (flock)\n"), "{report}");
    lock.0.kill().unwrap();
    lock.0.wait().unwrap();
    assert_held(&format!("process {pid}, which has exited, or by one of its children"));
}

/// On an overlay of two file systems, `stat(2)` has another device than the list of locks.
#[apply(trial)]
fn locked_pid_file_on_an_overlay() {
    let (setup, other) = (setup(), Directory::new());
    mount_tmpfs(other.path()).unwrap();
    let [upper, work] = ["upper", "work"].map(|name| other.sub(name).display().to_string());
    let lower = setup.directory().display();
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let (none, flags) = (None::<&str>, MsFlags::empty());
    mount(none, setup.directory(), Some("overlay"), flags, Some(&*layers)).unwrap();
    let lock = Lock::take(&setup.pid_file(), 0);
    let (_, report) = setup.check();
    assert!(report.ends_with(&format!(": held by process {} (flock)\n", lock.0.id())), "{report}");
}

/// `/proc/locks` has no process of another PID namespace.
#[apply(trial)]
fn pid_file_locked_in_another_namespace() {
    let setup = setup();
    let _lock = Lock::take(&setup.pid_file(), 0);
    let mut command = setup.command_behind(&["unshare", "--pid", "--fork", "--mount-proc"]);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.ends_with(": held by a process that cannot be found from here\n"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

/// Exit code 78, after which a service manager does not start it again.
#[apply(trial)]
fn read_only_file_system() {
    let setup = setup();
    mount_tmpfs_with(&setup.conf_dir, MsFlags::MS_RDONLY, "").unwrap();
    let output = setup.command().arg("--foreground").output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}

#[apply(trial)]
fn replaced_log_at_sighup() {
    let world = World::new();
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    let (log, kept) = (world.setup.log_file(), world.setup.directory().join("log.1"));
    let precious = world.setup.directory().join("precious");
    fs::write(&precious, "precious").unwrap();
    fs::rename(&log, &kept).unwrap();
    let watch = lab::files::Watch::new(world.setup.directory());
    let refused = |error: &str| {
        keepwatch.signal(Signal::SIGHUP);
        let line = format!("log file not reopened: {error}; writing to the old one");
        watch.until(&line, || world.setup.log_in(&kept).contains(&line).then_some(()));
        fs::remove_file(&log).unwrap();
    };
    hard_link(&precious, &log).unwrap();
    refused("has several hard links (EMLINK)");
    mkfifo(&log, Mode::S_IRWXU).unwrap();
    let _reader = File::options().read(true).write(true).open(&log).unwrap();
    refused("not a regular file");
    assert_eq!(content(&precious), "precious");
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP: resynchronising", 1);
}

/// Through a symlink of the user's, root would create a file anywhere.
#[apply(trial_with_other_users)]
fn log_directory_is_a_symlink() {
    let setup = setup_of_nobody();
    let elsewhere = setup.directory().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_dir(&setup.conf_dir).unwrap();
    symlink(&elsewhere, &setup.conf_dir).unwrap();
    assert_refused(&setup, "log file", &setup.log_file(), &[NOT_THEIRS]);
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

const NOT_THEIRS: &str =
    "Permission denied (EACCES): expected a directory that belongs to user 65534";

/// Neutron's own monitors leave root's log and pid file in the user's directory. Both stay root's, as the user may have
/// renamed any other file to these names.
#[apply(trial_with_other_users)]
fn files_of_a_predecessor() {
    for mode in [0o644, 0o600] {
        let world = World::with(setup_of_nobody());
        let (log, pid) = (world.setup.log_file(), world.setup.pid_file());
        for (path, mode) in [(&log, mode), (&pid, 0o644)] {
            fs::write(path, "precious\n").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(world.setup.check().0, Some(0));
        let keepwatch = world.setup.daemonize();
        keepwatch.signal(Signal::SIGHUP);
        keepwatch.wait_log("SIGHUP: resynchronising", 1);
        assert_eq!(content(&pid), keepwatch.pid().to_string());
        for path in [&log, &pid] {
            assert_eq!(fs::metadata(path).unwrap().uid(), NOBODY);
            let aside = PathBuf::from(format!("{}.predecessor", path.display()));
            assert_eq!((fs::metadata(&aside).unwrap().uid(), &*content(&aside)), (0, "precious\n"));
        }
        keepwatch.terminate();
        assert!(!pid.exists());
    }
}

/// A running predecessor is not replaced.
#[apply(trial_with_other_users)]
fn pid_file_that_a_predecessor_holds() {
    let setup = setup_of_nobody();
    fs::write(setup.pid_file(), "").unwrap();
    let lock = Lock::take(&setup.pid_file(), 0);
    let refused = |name: &str| {
        let error = String::from_utf8(setup.run().stderr).unwrap();
        let expected = format!("held by process {}{name}\n", lock.0.id());
        assert!(error.ends_with(&expected), "{error}");
    };
    refused(" (flock)");
    // As of systemd's ProtectProc=.
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), Some("hidepid=2")).unwrap();
    refused("");
}

/// Asserts that a path is refused over which another file is mounted. Returns that file.
fn assert_mount_is_refused(setup: &Setup, what: &str, path: &Path) -> PathBuf {
    let precious = setup.directory().join("precious");
    for path in [&precious, path] {
        fs::write(path, "").unwrap();
    }
    mount_over(path, &precious).unwrap();
    assert_refused(setup, what, path, &["Device or resource busy (EBUSY)"]);
    umount(path).unwrap();
    precious
}

#[apply(trial_with_other_users)]
fn mounted_log_is_left_alone() {
    let setup = setup_of_nobody();
    let precious = assert_mount_is_refused(&setup, "log file", &setup.log_file());
    assert_eq!(fs::metadata(precious).unwrap().uid(), 0);
}

/// As of a container, whose engine has mounted the file.
#[apply(trial)]
fn mounted_state_file_cannot_be_replaced() {
    let setup = setup();
    assert_mount_is_refused(&setup, "state file", &setup.state_file());
}

/// Root creates no file for the user in root's directories, such as `/etc/ld.so.preload`.
#[apply(trial_with_other_users)]
fn files_in_a_directory_of_root() {
    let directory = Directory::new();
    for (option, what) in [("pid_file", "pid file"), ("log-file", "log file")] {
        let path = directory.path().join("file");
        let setup = setup_of_nobody().with(format!("--{option}={}", path.display()));
        assert_refused(&setup, what, &path, &[NOT_THEIRS]);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert_refused(&setup, what, &path, &[NOT_THEIRS]);
        assert_eq!((fs::metadata(&path).unwrap().uid(), &*content(&path)), (0, "precious"));
        // A file that belongs to the user is accepted.
        chown(&path, Some(NOBODY), None).unwrap();
        assert_eq!(setup.check().0, Some(0));
        fs::remove_file(path).unwrap();
    }
}

/// On a full disk, the start creates a log, which is empty, but no pid file.
#[apply(trial)]
fn full_disk_has_room_for_a_log() {
    let setup = setup();
    let full = setup.directory().join("full");
    create_dir(&full).unwrap();
    mount_tmpfs_with(&full, MsFlags::empty(), "size=4k").unwrap();
    fs::write(full.join("ballast"), [0; 4096]).unwrap();
    let setup = setup.with(format!("--log-file={}", full.join("log").display()));
    let (code, report) = setup.check();
    let error = "No space left on device (ENOSPC)";
    let line = format!("{}: {error}; would be retried\n", full.join("log").display());
    assert!(code == Some(0) && report.contains(&line), "{report}");
    setup.adopt(&setup.run()).terminate();
    let pid_file = full.join("pid");
    let setup = setup.with(format!("--pid_file={}", pid_file.display()));
    assert_refused(&setup, "pid file", &pid_file, &[error]);
    // One that a daemon has left is empty.
    fs::write(&pid_file, "").unwrap();
    assert_refused(&setup, "pid file", &pid_file, &[error]);
}

#[apply(trial)]
fn control_characters_in_paths() {
    let name = "/nowhere\x1b[31m\n/file";
    for option in ["--pid_file=", "--log-file=", "--namespace="] {
        let setup = setup().with(format!("{option}{name}"));
        let foreground = setup.command().arg("--foreground").output().unwrap();
        let check = setup.command().arg("--check").output().unwrap();
        let daemon = setup.run();
        let printed = [foreground.stderr, daemon.stderr, check.stderr].map(|printed| {
            let printed = String::from_utf8(printed).unwrap();
            assert!(printed.contains("/nowhere\\u{1b}[31m\\n/file"), "{printed:?}");
            assert!(!printed.contains('\x1b'), "{printed:?}");
            printed
        });
        assert!(printed.iter().all(|printed| printed.lines().count() == 1), "{printed:?}");
        assert!(!check.status.success());
    }
}

/// Whoever may write the pid chooses whom the agent kills.
#[apply(trial)]
fn others_may_not_write_the_pid() {
    for (before, after) in [(0o666, 0o644), (0o600, 0o600)] {
        let world = World::new();
        let path = world.setup.pid_file();
        fs::write(&path, "1").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
        let keepwatch = world.setup.start();
        assert_eq!(content(&path), keepwatch.pid().to_string());
        let mode = path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, after, "from {before:o}");
    }
}

/// A daemon whose user may no longer search the directory of its pid file does not know whether that was replaced.
#[apply(trial_with_other_users)]
fn hidden_pid_file_is_not_lost() {
    let setup = setup_of_nobody();
    let run = setup.directory().join("run");
    create_dir(&run).unwrap();
    chown(&run, Some(NOBODY), None).unwrap();
    let world = World::with(setup.with(format!("--pid_file={}", run.join("pid").display())));
    let keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    keepwatch.wait_log("Notified agent router", 1);
    fs::set_permissions(&run, Permissions::from_mode(0o000)).unwrap();
    // After the first check, 10 s after the delivery, it sleeps until the second.
    look("the first check", || keepwatch.sleeps_for().is_some_and(|millis| millis > 10_000));
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));
}
