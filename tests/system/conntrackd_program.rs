//! Promise 13: which conntrackd is run. None that others than root could replace.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use lab::files::Directory;
use lab::trial::with_other_users;
use lab::users::SOMEBODY;
use libtest_mimic::Trial;

use crate::conntrackd::Tracked;

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![directory_of_that_name, file_that_is_none, open_to_others];
    trials.extend(with_other_users(lab::trials![program_of_somebody, link_by_way_of_somebody]));
    trials
}

/// A stand-in that comes with another directory before it in `PATH`.
fn behind(directory: &Path) -> Tracked {
    let mut tracked = Tracked::new();
    let (_, path) = tracked.world.setup.environment.iter_mut().find(|(n, _)| n == "PATH").unwrap();
    let mut first = directory.as_os_str().to_owned();
    first.push(":");
    first.push(&*path);
    *path = first;
    tracked
}

fn put_program(directory: &Path, mode: u32) -> PathBuf {
    let program = directory.join("conntrackd");
    fs::write(&program, "#!/bin/sh\necho the wrong one\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    program
}

/// The stand-in is run, and a line says what is not.
fn assert_passed_over(directory: &Path, refused: Option<&Path>) {
    let tracked = behind(directory);
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.calls(), "-t-n");
    let why = "not run: others than root can replace it\n";
    let log = tracked.world.setup.log();
    match refused {
        None => assert!(!log.contains(why), "{log}"),
        Some(program) => {
            let line = format!("{}: {why}", program.display());
            assert!(log.contains(&format!(": {line}")), "{log}");
            let output = tracked.world.setup.command().arg("--check").output().unwrap();
            let report = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(report.contains(&line) && report.contains("can be run"), "{report}");
        }
    }
}

fn directory_of_that_name() {
    let directory = Directory::new();
    directory.sub("conntrackd");
    assert_passed_over(directory.path(), None);
}

fn file_that_is_none() {
    let directory = Directory::new();
    put_program(directory.path(), 0o644);
    assert_passed_over(directory.path(), None);
}

fn open_to_others() {
    let directory = Directory::new();
    let program = put_program(directory.path(), 0o757);
    assert_passed_over(directory.path(), Some(&program));
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o757)).unwrap();
    assert_passed_over(directory.path(), Some(&program));
}

fn program_of_somebody() {
    let directory = Directory::new();
    let bin = directory.sub("bin");
    let program = put_program(&bin, 0o755);
    for theirs in [&program, &bin, directory.path()] {
        chown(theirs, Some(SOMEBODY), None).unwrap();
        assert_passed_over(&bin, Some(&program));
        chown(theirs, Some(0), None).unwrap();
    }
    // It may as well be a link from a directory of root's.
    let ours = Directory::new();
    let link = ours.path().join("conntrackd");
    symlink(&program, &link).unwrap();
    chown(&bin, Some(SOMEBODY), None).unwrap();
    assert_passed_over(ours.path(), Some(&link));
    chown(&bin, Some(0), None).unwrap();
    chown(&program, None, Some(SOMEBODY)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o775)).unwrap();
    assert_passed_over(&bin, Some(&program));
}

/// From root's directory to root's program, but over a link that is somebody's to change.
fn link_by_way_of_somebody() {
    let (ours, theirs, programs) = (Directory::new(), Directory::new(), Directory::new());
    let program = put_program(programs.path(), 0o755);
    let (first, second) = (ours.path().join("conntrackd"), theirs.path().join("link"));
    symlink(&second, &first).unwrap();
    symlink(&program, &second).unwrap();
    chown(theirs.path(), Some(SOMEBODY), None).unwrap();
    assert_passed_over(ours.path(), Some(&first));
}
