//! Promise 3: the state file is always whole, whatever happens to its directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use keepwatch::monitor::FoundStateFile;
use keepwatch::sys::state_file::StateFile;
use lab::daemon::{Running, Setup};
use lab::files::{Watch, content, look};
use lab::namespace::{Pids, mount_tmpfs, mount_tmpfs_with};
use lab::users::NOBODY;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::{World, setup, while_repeating, word};

/// Returns the hidden files: a spare, and during a write a temporary file.
pub fn hidden(setup: &Setup) -> Vec<PathBuf> {
    let paths = fs::read_dir(&setup.conf_dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains("/.state.keepwatch-")).collect()
}

/// Returns the only hidden file.
fn spare(setup: &Setup) -> PathBuf {
    let mut spares = hidden(setup);
    assert_eq!(spares.len(), 1, "{spares:?}");
    spares.remove(0)
}

/// Waits until the spare is ready: it has a word and its mark. A new one is marked before it has a word, too.
pub fn wait_spare(setup: &Setup) -> PathBuf {
    let ready = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.mtime() == 0 && found.len() > 0)
    };
    look("a spare", || matches!(&hidden(setup)[..], [path] if ready(path)));
    spare(setup)
}

/// Something of another process has the name of the state file or of the spare. The next change replaces it, without
/// following it, and the change after it does not bring it back.
#[apply(trial)]
fn others_files_in_their_places() {
    let setup = setup();
    let precious = setup.directory().join("precious");
    fs::write(&precious, "as it was").unwrap();
    let places: [fn(&Setup) -> PathBuf; 2] = [Setup::state_file, spare];
    for place in places {
        for kind in ["symlink", "fifo", "hard link", "file", "nothing"] {
            let mut file = StateFile::new(&setup.state_file()).unwrap();
            file.write("backup").unwrap();
            file.prepare("master", 1).unwrap();
            let path = place(&setup);
            if kind == "hard link" {
                let _ = fs::remove_file(setup.conf_dir.join("link"));
                fs::hard_link(&path, setup.conf_dir.join("link")).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            match kind {
                "symlink" => symlink(&precious, &path).unwrap(),
                "fifo" => mkfifo(&path, Mode::S_IRWXU).unwrap(),
                "file" => fs::write(&path, "backup").unwrap(),
                _ => {}
            }
            for (state, other) in [("master", "backup"), ("backup", "master")] {
                file.write(state).unwrap();
                let metadata = fs::symlink_metadata(setup.state_file()).unwrap();
                assert!(metadata.is_file() && setup.state() == state, "{kind}: {}", setup.state());
                file.prepare(other, 1).unwrap();
                assert_eq!(file.find(), FoundStateFile::Intact, "{kind}");
            }
            drop(file);
            assert_eq!(
                (hidden(&setup), content(&precious)),
                (vec![], "as it was".into()),
                "{kind}"
            );
        }
    }
}

/// An exchange with a directory succeeds. It then has the spare's name, and is not removed.
#[apply(trial)]
fn directory_in_its_place() {
    let setup = setup();
    let mut file = StateFile::new(&setup.state_file()).unwrap();
    file.write("backup").unwrap();
    file.prepare("master", 1).unwrap();
    fs::remove_file(setup.state_file()).unwrap();
    fs::create_dir_all(setup.state_file().join("precious")).unwrap();
    for (state, other) in [("master", "backup"), ("backup", "master")] {
        file.write(state).unwrap();
        assert_eq!(setup.state(), state);
        assert!(file.prepare(other, 1).is_err());
    }
    fs::remove_dir_all(spare(&setup)).unwrap();
    file.prepare("master", 1).unwrap();
}

/// No change brings back a mode or an owner that another process has given to the spare.
#[apply(trial_with_other_users)]
fn spare_with_other_rights() {
    let setup = setup();
    let mut file = StateFile::new(&setup.state_file()).unwrap();
    file.write("backup").unwrap();
    for (n, state) in ["master", "backup", "master"].into_iter().enumerate() {
        file.prepare(state, 1).unwrap();
        let spare = spare(&setup);
        match n {
            0 => fs::set_permissions(&spare, Permissions::from_mode(0o666)).unwrap(),
            1 => fs::set_permissions(&spare, Permissions::from_mode(0o000)).unwrap(),
            _ => chown(&spare, Some(NOBODY), None).unwrap(),
        }
        file.write(state).unwrap();
        let path = setup.state_file();
        let owner = fs::metadata(&path).unwrap().uid();
        assert_eq!((&*setup.state(), mode(&path), owner), (state, 0o644, 0));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// A file's time of change is whole seconds.
#[apply(trial)]
fn time_of_the_last_change() {
    let setup = setup();
    let mut file = StateFile::new(&setup.state_file()).unwrap();
    for (state, other, since) in [("backup", "master", 7), ("master", "backup", 8)] {
        file.write(state).unwrap();
        file.prepare(other, since).unwrap();
        let found = fs::metadata(setup.state_file()).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (since.cast_signed(), 0));
    }
}

pub fn start<'a>(setup: &'a Setup, log: &Path) -> Running<'a> {
    let log = format!("--log-file={}", log.display());
    setup.attend(setup.command().arg(log).arg("--foreground").spawn().unwrap())
}

/// Neutron's agent starts a successor while the predecessor is still exiting. Both have the same pid.
#[apply(trial)]
fn two_daemons_write() {
    // Neither loses an event, so each writes at each flip.
    let setup = || setup().with("--netlink-rcvbuf=100000000");
    let (world, mut other) = (World::with(setup()), setup());
    other.conf_dir.clone_from(&world.setup.conf_dir);
    let logs = [world.setup.directory().join("log-1"), world.setup.directory().join("log-2")];
    let pids = [Pids::new(), Pids::new()];
    let daemons =
        [pids[0].run(|| start(&world.setup, &logs[0])), pids[1].run(|| start(&other, &logs[1]))];
    let watch = Watch::new(world.setup.directory());
    let wait_written = |times| {
        for log in &logs {
            let written = || world.setup.log_in(log).matches("Wrote router").count() >= times;
            watch.until("both to have written", || written().then_some(()));
        }
    };
    wait_written(1);
    let assert_whole = || {
        let state = world.setup.state();
        assert!(["master", "backup"].contains(&state.as_str()), "{state:?}");
    };
    while_repeating(assert_whole, || {
        for flip in 0..2000 {
            world.set_vip(flip % 2 == 0);
        }
        wait_written(2001);
    });
    let line = "another process writes the state file";
    let is_in = |log: &PathBuf| world.setup.log_in(log).contains(line);
    watch.until("a check to find the other's file", || logs.iter().any(is_in).then_some(()));
    for daemon in daemons {
        assert!(daemon.terminate().unwrap().success());
    }
    for log in &logs {
        let log = world.setup.log_in(log);
        assert!(!log.contains("state file not written"), "{log}");
    }
    assert_eq!(hidden(&world.setup), [] as [&Path; 0]);
}

/// The agent's word, another mode, or no file, in place of the daemon's last file: the first check after a report writes it
/// again.
#[apply(trial)]
fn changed_file_is_written_again() {
    let changes: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, "master").unwrap(),
        |path| fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap(),
    ];
    for change in changes {
        let world = World::new();
        let daemon = world.setup.start();
        daemon.wait_log("Notified agent router", 1);
        change(&world.setup.state_file());
        daemon.wait_log("Wrote router", 2);
        assert_eq!((&*world.setup.state(), mode(&world.setup.state_file())), ("backup", 0o644));
        assert!(!world.setup.log().contains("another process"), "{}", world.setup.log());
    }
}

/// A state file that cannot be seen cannot be read, either: the first check after a report notices that.
#[apply(trial)]
fn hidden_state_file() {
    let world = World::new();
    let (conf_dir, log) = (&world.setup.conf_dir, world.setup.directory().join("log"));
    let keepwatch = start(&world.setup, &log);
    world.agent.wait_acknowledged("backup");
    let elsewhere = world.setup.directory().join("elsewhere");
    fs::rename(conf_dir, &elsewhere).unwrap();
    fs::write(conf_dir, "").unwrap();
    let logs = |line: &str, times| {
        keepwatch.wait(line, || world.setup.log_in(&log).matches(line).count() == times);
    };
    logs("state file not written: Not a directory (ENOTDIR)", 1);
    fs::remove_file(conf_dir).unwrap();
    fs::rename(elsewhere, conf_dir).unwrap();
    logs("Wrote router", 2);
}

#[apply(trial)]
fn mode_and_content() {
    let world = World::new();
    // The starter's umask does not matter.
    for umask in ["0", "077"] {
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let mut command = world.setup.command_behind(&["sh", "-c", &script]);
        let _keepwatch = world.setup.adopt(&command.output().unwrap());
        assert_eq!(world.setup.state(), "backup");
        wait_spare(&world.setup);
        let files = [world.setup.state_file(), world.setup.log_file(), world.setup.pid_file()];
        for path in files.into_iter().chain(hidden(&world.setup)) {
            assert_eq!(format!("{:04o}", mode(&path)), "0644", "mode of {}", path.display());
            fs::remove_file(path).unwrap();
        }
    }
}

/// Each change is written at once, also without a spare, and by a start that finds another state.
#[apply(trial)]
fn full_directory() {
    let world = World::new();
    let (setup, log) = (&world.setup, world.setup.directory().join("log"));
    mount_tmpfs_with(&setup.conf_dir, MsFlags::empty(), "size=64k").unwrap();
    let ballast = setup.conf_dir.join("ballast");
    let keepwatch = start(setup, &log);
    world.agent.wait_acknowledged("backup");
    wait_spare(setup);
    let _ = fs::write(&ballast, vec![0; 65536]);
    for present in [true, false, true, false] {
        world.deliver(present);
        assert_eq!(setup.state(), word(present));
        wait_spare(setup);
    }
    // The spare takes the place of what another process has made of the state file.
    for (present, is_symlink) in [(true, false), (false, true)] {
        fs::remove_file(setup.state_file()).unwrap();
        if is_symlink {
            symlink(&ballast, setup.state_file()).unwrap();
        }
        let _ = fs::write(&ballast, vec![0; 65536]);
        world.deliver(present);
        let metadata = fs::symlink_metadata(setup.state_file()).unwrap();
        assert!(metadata.is_file() && setup.state() == word(present), "{is_symlink}");
        wait_spare(setup);
    }
    // The state is reported again, and the spare has the other word.
    keepwatch.signal(Signal::SIGHUP);
    world.agent.wait("another notification", |received| received.len() >= 8);
    let text = setup.log_in(&log);
    assert!(!text.contains("not written") && !text.contains("no spare"), "{text}");
    // Its room is free only once a change has closed it.
    fs::remove_file(wait_spare(setup)).unwrap();
    let _ = fs::write(&ballast, vec![0; 65536]);
    world.deliver(true);
    assert_eq!(setup.state(), "master");
    keepwatch.terminate();
    let _ = fs::write(&ballast, vec![0; 65536]);
    world.set_vip(false);
    fs::set_permissions(setup.state_file(), Permissions::from_mode(0o600)).unwrap();
    let keepwatch = start(setup, &log);
    keepwatch.wait_state("backup");
    look("no room", || setup.log_in(&log).contains("no spare state file: "));
    world.set_vip(true);
    keepwatch.wait_state("master");
    assert_eq!(mode(&setup.state_file()), 0o600);
    // With room there is a spare again, and no file has other rights.
    fs::remove_file(&ballast).unwrap();
    wait_spare(setup);
    look("a file with the right mode", || mode(&setup.state_file()) == 0o644);
    world.deliver(false);
    wait_spare(setup);
    assert_eq!(mode(&setup.state_file()), 0o644);
    drop(keepwatch);
    let log = setup.log_in(&log);
    assert!(log.contains(" WARNING ") && !log.contains("not written"), "{log}");
}

/// The running daemon writes into a file system mounted over its directory.
#[apply(trial)]
fn mount_over_the_directory_is_followed() {
    let world = World::new();
    let _keepwatch = start(&world.setup, &world.setup.directory().join("log"));
    world.agent.wait_acknowledged("backup");
    mount_tmpfs(&world.setup.conf_dir).unwrap();
    world.deliver(true);
    assert_eq!(world.setup.state(), "master");
    umount2(&world.setup.conf_dir, MntFlags::MNT_DETACH).unwrap();
    assert_eq!(world.setup.state(), "backup");
    for (present, arrivals) in [(false, 3), (true, 4)] {
        world.set_vip(present);
        world.agent.wait("another notification", |received| received.len() >= arrivals);
        assert_eq!(world.setup.state(), word(present));
    }
}
