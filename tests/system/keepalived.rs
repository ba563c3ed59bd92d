//! Whether keepalived runs, by its pid file. tests/interop has a real keepalived.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, UNIX_EPOCH};

use lab::daemon::{Setup, proc_status};
use lab::namespace::{Pids, mount_tmpfs};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::privileges::setup_of_nobody;
use crate::world::{Killed, World, setup};

fn with_file() -> (Setup, PathBuf) {
    let setup = setup();
    let file = setup.directory().join("vrrp.pid");
    let option = format!("--keepalived-pid-file={}", file.display());
    (setup.with(option), file)
}

fn sleeping() -> Killed {
    Killed(Command::new("sleep").arg("1000").spawn().unwrap())
}

/// Writes the number that a process has in its own PID namespace.
fn write_number(file: &Path, process: &Killed) {
    let numbers = proc_status(process.0.id(), "NSpid");
    fs::write(file, numbers.split_whitespace().last().unwrap()).unwrap();
}

/// Ends a process, which nobody waits for.
fn end(child: &mut Child) {
    child.kill().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
}

/// Locks a file for as long as it is open.
fn lock(file: &Path, kind: libc::c_int) -> File {
    let locked = File::options().read(true).write(true).open(file).unwrap();
    let lock = libc::flock {
        l_type: kind.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&locked, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    locked
}

/// Returns what `--check` says.
fn shown(setup: &Setup, file: &Path) -> String {
    let (_, report) = setup.check();
    let start = format!("keepalived  {}: ", file.display());
    let line = report.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{report}")).into()
}

#[apply(trial)]
fn what_its_file_shows() {
    let (setup, file) = with_file();
    let shown = || shown(&setup, &file);
    assert_eq!(shown(), "does not run");
    let mut keepalived = sleeping();
    fs::write(&file, format!("{}\n", keepalived.0.id())).unwrap();
    assert_eq!(shown(), "runs");
    // A zombie does not run, and neither does a process that is gone.
    end(&mut keepalived.0);
    assert_eq!(shown(), "does not run");
    drop(keepalived);
    let sees_all = fs::read_link("/proc/self/ns/pid").unwrap() == Path::new("pid:[4026531836]");
    let gone = if sees_all { "does not run" } else { "cannot be seen" };
    assert_eq!(shown(), gone);
    // Any user who may read it can lock it so.
    let reader = lock(&file, libc::F_RDLCK);
    assert_eq!(shown(), gone);
    drop(reader);
    // In another PID namespace the number means nothing.
    assert_eq!(Pids::new().run(shown), "cannot be seen");
    for content in ["", "keepalived", "-1\n", "123456789012345678901\n"] {
        fs::write(&file, content).unwrap();
        assert_eq!(shown(), "cannot be seen", "{content:?}");
    }
    fs::write(&file, format!("{}\n", std::process::id())).unwrap();
    assert_eq!(shown(), "runs");
    // A file of an earlier boot.
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(shown(), "cannot be seen");
    // In memory it is of this boot, and the clock has been set since.
    let memory = setup.directory().join("memory");
    fs::create_dir(&memory).unwrap();
    mount_tmpfs(&memory).unwrap();
    let written = memory.join("vrrp.pid");
    fs::write(&written, format!("{}\n", std::process::id())).unwrap();
    File::options().write(true).open(&written).unwrap().set_modified(long_ago).unwrap();
    let in_memory =
        crate::world::setup().with(format!("--keepalived-pid-file={}", written.display()));
    assert_eq!(self::shown(&in_memory, &written), "runs");
    // Newer keepalived holds a lock, which other namespaces see.
    let _locked = lock(&file, libc::F_WRLCK);
    assert_eq!(shown(), "runs");
    assert_eq!(Pids::new().run(shown), "runs");
}

/// A process that was seen to run is known to have ended, also in a PID namespace.
#[apply(trial)]
fn end_of_its_process() {
    let (setup, file) = with_file();
    let world = World::with(setup.with("--debug"));
    world.setup.expect(&["keepalived does not run"]);
    let pids = Pids::new();
    pids.run(|| {
        let keepalived = sleeping();
        write_number(&file, &keepalived);
        let keepwatch = world.setup.start();
        keepwatch.wait_log("KeepalivedChecked(Runs)", 1);
        drop(keepalived);
        keepwatch.wait_log("KeepalivedChecked(Gone)", 1);
        keepwatch.wait_log("keepalived does not run", 1);
        // It is back.
        let successor = sleeping();
        write_number(&file, &successor);
        keepwatch.wait("keepalived", || !keepwatch.status().contains("keepalived does not run"));
        keepwatch.terminate();
    });
}

/// An end without the removal of the file is seen by the lock, even if the clock has been set since the start.
#[apply(trial)]
fn end_of_its_lock() {
    let (setup, file) = with_file();
    let world = World::with(setup.with("--debug"));
    world.setup.expect(&["keepalived does not run"]);
    fs::write(&file, "1").unwrap();
    let locked = lock(&file, libc::F_WRLCK);
    locked.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let keepwatch = world.setup.start();
    keepwatch.wait_log("KeepalivedChecked(Runs)", 1);
    drop(locked);
    keepwatch.wait_log("keepalived does not run", 1);
}

/// The start goes on, with a line.
#[apply(trial_with_other_users)]
fn pid_file_that_cannot_be_read() {
    for (setup, why) in [(setup_of_nobody(), "(EACCES), as user 65534"), (setup(), "(ELOOP)")] {
        let run = setup.directory().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
        let file = run.join("vrrp.pid");
        symlink("elsewhere", &file).unwrap();
        let world = World::with(setup.with(format!("--keepalived-pid-file={}", file.display())));
        world.setup.expect(&["keepalived is not watched meanwhile"]);
        let line = format!("{why}; keepalived is not watched meanwhile");
        assert!(world.setup.check().1.contains(&line));
        let keepwatch = world.setup.start();
        keepwatch.wait_log(&line, 1);
        keepwatch.wait_state("backup");
    }
}

/// keepalived may remove its directory at its end, and makes it again.
#[apply(trial_with_other_users)]
fn its_directory_is_made_later() {
    for (setup, exists) in [(setup(), false), (setup(), true), (setup_of_nobody(), true)] {
        let run = setup.directory().join("run/keepalived");
        fs::create_dir_all(&run).unwrap();
        let file = run.join("vrrp.pid");
        let option = format!("--keepalived-pid-file={}", file.display());
        let world = World::with(setup.with(option).with("--debug"));
        if !exists {
            fs::remove_dir(&run).unwrap();
        }
        let keepwatch = world.setup.daemonize();
        keepwatch.wait_log("KeepalivedChecked(Gone)", 1);
        if exists {
            fs::rename(&run, run.with_extension("old")).unwrap();
        }
        fs::create_dir(&run).unwrap();
        let keepalived = sleeping();
        write_number(&file, &keepalived);
        keepwatch.wait_log("KeepalivedChecked(Runs)", 1);
    }
}
