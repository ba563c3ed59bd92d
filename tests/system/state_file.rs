//! Promise 3: the state file is always whole, whatever happens to its directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use keepwatch::sys::atomic_file::AtomicFile;
use lab::daemon::{Running, Setup};
use lab::files::{Watch, content, look};
use lab::namespace::mount_tmpfs;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::{World, setup, word};

/// A symlink or fifo has the name of the state file, or of its temporary file, which contains the pid of this process.
#[apply(trial)]
fn symlink_or_fifo_in_its_place() {
    let setup = setup();
    let file = AtomicFile::new(&setup.state_file()).unwrap();
    let name = format!(".state.keepwatch-{}", std::process::id());
    let precious = setup.directory().join("precious");
    fs::write(&precious, "as it was").unwrap();
    for place in [setup.state_file(), setup.conf_dir.join(name)] {
        for is_link in [true, false] {
            let _ = fs::remove_file(&place);
            if is_link {
                symlink(&precious, &place).unwrap();
            } else {
                mkfifo(&place, Mode::S_IRWXU).unwrap();
            }
            file.replace(b"master", false).unwrap();
            assert!(fs::symlink_metadata(setup.state_file()).unwrap().is_file());
            assert_eq!((setup.state(), content(&precious)), ("master".into(), "as it was".into()));
            assert_eq!(temporaries(&setup), [] as [&Path; 0]);
        }
    }
}

/// Returns the temporary files, which exist only during a write.
fn temporaries(setup: &Setup) -> Vec<PathBuf> {
    let paths = fs::read_dir(&setup.conf_dir).unwrap().map(|entry| entry.unwrap().path());
    let is_temporary = |path: &PathBuf| path.to_string_lossy().contains("/.state");
    paths.filter(is_temporary).collect()
}

fn start<'a>(setup: &'a Setup, log: &Path) -> Running<'a> {
    let log = format!("--log-file={}", log.display());
    setup.attend(setup.command().arg(log).arg("--foreground").spawn().unwrap())
}

/// Neutron's agent starts a successor while the predecessor is still exiting.
#[apply(trial)]
fn two_daemons_write() {
    let world = World::new();
    let mut other = setup();
    other.conf_dir.clone_from(&world.setup.conf_dir);
    let logs = [world.setup.directory().join("log-1"), world.setup.directory().join("log-2")];
    let daemons = [start(&world.setup, &logs[0]), start(&other, &logs[1])];
    let watch = Watch::new(world.setup.directory());
    let wait_written = |times| {
        for log in &logs {
            let written = || world.setup.log_in(log).matches("Wrote router").count() >= times;
            watch.until("both to have written", || written().then_some(()));
        }
    };
    wait_written(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let state = world.setup.state();
                assert!(["master", "backup"].contains(&state.as_str()), "{state:?}");
            }
        });
        let driver = scope.spawn(|| {
            for flip in 0..2000 {
                world.set_vip(flip % 2 == 0);
            }
            wait_written(2001);
        });
        let driver = driver.join();
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        driver.unwrap();
    });
    let line = "another process writes the state file";
    let is_in = |log: &PathBuf| world.setup.log_in(log).contains(line);
    watch.until("a check to find the other's file", || logs.iter().any(is_in).then_some(()));
    drop(daemons);
    for log in &logs {
        let log = world.setup.log_in(log);
        assert!(!log.contains("state file not written"), "{log}");
    }
    assert_eq!(temporaries(&world.setup), [] as [&Path; 0]);
}

#[apply(trial)]
fn mode_and_content() {
    let world = World::new();
    // The starter's umask does not matter.
    for umask in ["0", "077"] {
        let command = world.setup.command();
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args())
            .output()
            .unwrap();
        let _keepwatch = world.setup.adopt(&output);
        assert_eq!(world.setup.state(), "backup");
        for path in [world.setup.state_file(), world.setup.log_file(), world.setup.pid_file()] {
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(format!("{mode:04o}"), "0644", "mode of {}", path.display());
            fs::remove_file(path).unwrap();
        }
    }
}

/// Each state is delivered, and written when the directory has room.
#[apply(trial)]
fn full_directory() {
    let world = World::new();
    let (setup, log) = (&world.setup, world.setup.directory().join("log"));
    let (none, size): (Option<&str>, _) = (None, Some("size=64k"));
    mount(none, &setup.conf_dir, Some("tmpfs"), MsFlags::empty(), size).unwrap();
    let ballast = setup.conf_dir.join("ballast");
    let keepwatch = start(setup, &log);
    world.agent.wait_acknowledged("backup");
    for present in [true, false] {
        let _ = fs::write(&ballast, vec![0; 65536]);
        world.deliver(present);
        assert_ne!(setup.state(), word(present), "the directory was not full");
        // A retry may be under way.
        look("no temporary file", || temporaries(setup).is_empty());
        fs::remove_file(&ballast).unwrap();
        keepwatch.wait_state(word(present));
    }
    drop(keepwatch);
    assert_eq!(temporaries(setup), [] as [&Path; 0]);
    let log = setup.log_in(&log);
    assert!(log.contains(" WARNING ") && log.contains("state file not written: "), "{log}");
}

/// The running daemon writes into a file system mounted over its directory, and does not keep it busy.
#[apply(trial)]
fn mount_over_the_directory_is_followed() {
    let world = World::new();
    let _keepwatch = start(&world.setup, &world.setup.directory().join("log"));
    world.agent.wait_acknowledged("backup");
    mount_tmpfs(&world.setup.conf_dir).unwrap();
    world.deliver(true);
    assert_eq!((world.setup.state().as_str(), temporaries(&world.setup)), ("master", vec![]));
    umount(&world.setup.conf_dir).unwrap();
    assert_eq!(world.setup.state(), "backup");
    for (present, arrivals) in [(false, 3), (true, 4)] {
        world.set_vip(present);
        world.agent.wait("another notification", |received| received.len() >= arrivals);
        assert_eq!(world.setup.state(), word(present));
    }
}

#[apply(trial)]
fn unwritable_at_start() {
    let setup = setup();
    let none: Option<&str> = None;
    mount(none, &setup.conf_dir, Some("tmpfs"), MsFlags::MS_RDONLY, none).unwrap();
    let log = format!("--log-file={}", setup.directory().join("log").display());
    let output = setup.command().arg(log).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.ends_with("/conf/state: Read-only file system (EROFS)\n"), "{error}");
}
