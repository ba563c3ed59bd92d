//! Promise 15, and the same for the log: files that others have had a hand in are not taken.

use std::fs::{self, File, Permissions, hard_link};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::daemon::Setup;
use lab::files::{content, read_line};
use lab::trial::with_other_users;
use lab::users::{NOBODY, SOMEBODY};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::privileges::setup_of_nobody;
use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        file_with_another_name,
        fifo,
        pid_file_locked_by_root,
        log_that_is_another_at_hangup,
        control_characters_in_paths,
    ];
    trials.extend(with_other_users(lab::trials![
        file_of_another_user,
        pid_file_locked_by_a_stranger,
        pid_file_locked_by_who_has_ended,
        directory_of_the_user_that_leads_elsewhere,
        log_of_root_is_given_to_the_user,
        log_of_root_that_is_secret_is_not,
        log_in_a_directory_of_root,
    ]));
    trials
}

/// Someone who holds a lock on a file and does nothing else.
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
        let group = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        let _ = nix::sys::signal::killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// It does not start, with this error in the end.
fn assert_refused(setup: &Setup, what: &str, path: &Path, error: &str) {
    let expected = format!("keepwatch: {what} {}: {error}\n", path.display());
    let mut checked = setup.command();
    let output = setup.run();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    let output = checked.arg("--check").output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("{what:<11} {}: does not work: {error}\n", path.display());
    assert!(report.contains(&expected) && !output.status.success(), "{report}");
}

fn both(setup: &Setup) -> [(&'static str, PathBuf); 2] {
    [("pid file", setup.pid_file()), ("log file", setup.log_file())]
}

fn file_with_another_name() {
    let setup = setup();
    let precious = setup.directory().join("precious");
    fs::write(&precious, "precious").unwrap();
    for (what, path) in both(&setup) {
        hard_link(&precious, &path).unwrap();
        assert_refused(&setup, what, &path, "Too many links (EMLINK)");
        assert_eq!(content(&precious), "precious");
        fs::remove_file(path).unwrap();
    }
}

fn fifo() {
    let setup = setup();
    for (what, path) in both(&setup) {
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert_refused(&setup, what, &path, "not a regular file");
        fs::remove_file(path).unwrap();
    }
}

fn file_of_another_user() {
    let setup = setup();
    for (what, path) in both(&setup) {
        fs::write(&path, "precious").unwrap();
        chown(&path, Some(SOMEBODY), None).unwrap();
        assert_refused(&setup, what, &path, "belongs to user 12345");
        assert_eq!(content(&path), "precious");
        fs::remove_file(path).unwrap();
    }
}

fn pid_file_locked_by_root() {
    let setup = setup();
    fs::write(setup.pid_file(), "\x1b[31m").unwrap();
    let lock = Lock::take(&setup.pid_file(), 0);
    let output = setup.run();
    assert_eq!(output.status.code(), Some(1));
    let (path, pid) = (setup.pid_file(), lock.0.id());
    let held =
        format!("keepwatch: pid file {}: held by another instance, pid {pid}\n", path.display());
    assert_eq!(String::from_utf8_lossy(&output.stderr), held);
}

/// One need but read the file to lock it.
fn assert_replaced(world: &World, holder: &str) {
    let keepwatch = world.setup.daemonize();
    assert_eq!(content(&world.setup.pid_file()), keepwatch.pid().to_string());
    let line = format!("replaced the pid file, as it was locked by {holder}\n");
    keepwatch.wait_log(&line, 1);
    let output = world.setup.run();
    let held = format!("held by another instance, pid {}\n", keepwatch.pid());
    assert!(String::from_utf8_lossy(&output.stderr).ends_with(&held), "{output:?}");
    keepwatch.terminate();
    assert!(!world.setup.pid_file().exists());
}

fn pid_file_locked_by_a_stranger() {
    let world = World::new();
    fs::write(world.setup.pid_file(), "").unwrap();
    let lock = Lock::take(&world.setup.pid_file(), SOMEBODY);
    assert_replaced(&world, &format!("process {} of user 12345", lock.0.id()));
}

fn pid_file_locked_by_who_has_ended() {
    let world = World::new();
    fs::write(world.setup.pid_file(), "").unwrap();
    let mut lock = Lock::take(&world.setup.pid_file(), SOMEBODY);
    lock.0.kill().unwrap();
    lock.0.wait().unwrap();
    assert_replaced(&world, &format!("process {}, which has ended", lock.0.id()));
}

fn log_that_is_another_at_hangup() {
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
        let line = format!("log file: {error}; keeping the old one");
        watch.until(&line, || world.setup.log_in(&kept).contains(&line).then_some(()));
        fs::remove_file(&log).unwrap();
    };
    hard_link(&precious, &log).unwrap();
    refused("Too many links (EMLINK)");
    mkfifo(&log, Mode::S_IRWXU).unwrap();
    let _reader = File::options().read(true).write(true).open(&log).unwrap();
    refused("not a regular file");
    if lab::users::has_others() {
        File::create(&log).unwrap();
        chown(&log, Some(SOMEBODY), None).unwrap();
        refused("belongs to user 12345");
    }
    assert_eq!(content(&precious), "precious");
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP: resynchronising", 1);
}

/// Root would create a file wherever the user likes.
fn directory_of_the_user_that_leads_elsewhere() {
    let setup = setup_of_nobody();
    let elsewhere = setup.directory().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_dir(&setup.conf_dir).unwrap();
    symlink(&elsewhere, &setup.conf_dir).unwrap();
    assert_refused(&setup, "log file", &setup.log_file(), "Permission denied (EACCES)");
    let pid_file = setup.conf_dir.join("pid");
    let setup = setup.with(format!("--pid_file={}", pid_file.display()));
    assert_refused(&setup, "pid file", &pid_file, "Permission denied (EACCES)");
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

fn log_of_root_is_given_to_the_user() {
    let world = World::with(setup_of_nobody());
    let (log, pid) = (world.setup.log_file(), world.setup.pid_file());
    let [old_log, old_pid] = [&log, &pid].map(|path| {
        fs::write(path, "").unwrap();
        fs::metadata(path).unwrap().ino()
    });
    let keepwatch = world.setup.daemonize();
    keepwatch.signal(Signal::SIGHUP);
    keepwatch.wait_log("SIGHUP: resynchronising", 1);
    assert_eq!(content(&pid), keepwatch.pid().to_string());
    for (path, old) in [(&log, old_log), (&pid, old_pid)] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.ino()), (NOBODY, old), "{}", path.display());
    }
    keepwatch.terminate();
    assert!(!pid.exists());
}

fn log_of_root_that_is_secret_is_not() {
    let setup = setup_of_nobody();
    fs::write(setup.log_file(), "secret\n").unwrap();
    fs::set_permissions(setup.log_file(), Permissions::from_mode(0o600)).unwrap();
    assert_refused(&setup, "log file", &setup.log_file(), "Permission denied (EACCES)");
    assert_eq!(fs::metadata(setup.log_file()).unwrap().uid(), 0);
}

/// Where the user may not create it, and nobody but root has a say in where it is.
fn log_in_a_directory_of_root() {
    let setup = setup_of_nobody();
    let directory = lab::files::Directory::new();
    let (log, link) = (directory.sub("log").join("log"), directory.path().join("link"));
    symlink("log", &link).unwrap();
    let world = World::with(setup.with(format!("--log-file={}", link.join("log").display())));
    let keepwatch = world.setup.daemonize();
    lab::files::Watch::new(log.parent().unwrap()).until("the first lines", || {
        world.setup.log_in(&log).contains("Initial status").then_some(())
    });
    assert_eq!(fs::metadata(&log).unwrap().uid(), NOBODY);
    keepwatch.terminate();
}

fn control_characters_in_paths() {
    let name = "/nowhere\x1b[31m\n/file";
    for option in ["--pid_file=", "--log-file=", "--namespace="] {
        let setup = setup().with(format!("{option}{name}"));
        let foreground = setup.command().arg("--foreground").output().unwrap();
        let check = setup.command().arg("--check").output().unwrap();
        let daemon = setup.run();
        let said = [foreground.stderr, daemon.stderr, check.stdout].map(|said| {
            let said = String::from_utf8(said).unwrap();
            assert!(said.contains("/nowhere\\u{1b}[31m\\n/file"), "{said:?}");
            assert!(!said.contains('\x1b'), "{said:?}");
            said
        });
        assert!(said[0].lines().count() == 1 && said[1].lines().count() == 1, "{said:?}");
        assert!(!check.status.success());
    }
}
