//! Promises 13 and 20: root runs no program that other users can replace.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use keepwatch::start::trust::is_safe;
use lab::files::Directory;
use lab::users::OTHER_USER;

use crate::scripted::tracked;
use crate::world::setup;

fn put_program(directory: &Path, name: &str, mode: u32) -> PathBuf {
    let program = directory.join(name);
    fs::write(&program, "#!/bin/sh\necho the wrong one\n").unwrap();
    set_mode(&program, mode);
    program
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The program or a directory of its path is writable. The group counts as other users, even root's: with an access
/// list, its bits are the mask for all other users.
#[apply(trial)]
fn open_to_others() {
    let directory = Directory::new();
    let program = put_program(&directory.sub("bin"), "program", 0o755);
    for path in [&program, program.parent().unwrap(), directory.path()] {
        assert!(is_safe(&program));
        for mode in [0o757, 0o775] {
            set_mode(path, mode);
            assert!(!is_safe(&program), "{mode:o} {}", path.display());
        }
        set_mode(path, 0o755);
    }
    assert!(!is_safe(Path::new("relative")) && !is_safe(&directory.path().join("missing")));
}

#[apply(trial_with_other_users)]
fn owned_by_others() {
    let (ours, theirs) = (Directory::new(), Directory::new());
    let program = put_program(ours.path(), "program", 0o755);
    for path in [&program, ours.path()] {
        chown(path, Some(OTHER_USER), None).unwrap();
        assert!(!is_safe(&program));
        chown(path, Some(0), None).unwrap();
    }
    // A symlink in a directory of another user leads to a program of root's.
    let (first, second) = (ours.path().join("first"), theirs.path().join("second"));
    symlink(&second, &first).unwrap();
    symlink(&program, &second).unwrap();
    assert!(is_safe(&first));
    chown(theirs.path(), Some(OTHER_USER), None).unwrap();
    assert!(!is_safe(&first) && is_safe(&program));
}

#[apply(trial_with_other_users)]
fn open_by_an_access_list() {
    let directory = Directory::new();
    let program = put_program(directory.path(), "program", 0o755);
    for path in [&program, directory.path()] {
        assert!(is_safe(&program));
        let set = |change: &[&str]| {
            let status = Command::new("setfacl").args(change).arg(path).status();
            assert!(status.expect("setfacl, of the package acl").success());
        };
        set(&["-m", "u:nobody:rwx"]);
        assert!(!is_safe(&program), "{}", path.display());
        set(&["-b"]);
        set_mode(path, 0o755);
    }
}

/// The next conntrackd in `PATH` that is trusted runs, and a line names the first of two refused ones.
#[apply(trial)]
fn conntrackd_is_passed_over() {
    let directory = Directory::new();
    let program = put_program(directory.path(), "conntrackd", 0o757);
    let second = directory.sub("second");
    put_program(&second, "conntrackd", 0o757);
    let mut tracked = tracked(setup());
    let (_, path) = tracked.world.setup.environment.iter_mut().find(|(n, _)| n == "PATH").unwrap();
    let mut first = directory.path().as_os_str().to_owned();
    for next in [second.as_os_str(), &*path] {
        first.push(":");
        first.push(next);
    }
    *path = first;
    let path = program.display();
    let line =
        format!("{path}: not run: users other than root can replace it: {path} has mode 0757\n");
    let (_, report) = tracked.world.setup.check();
    assert!(report.contains(&line) && report.contains("can be run"), "{report}");
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    assert_eq!(tracked.flags(), "-t-n");
    keepwatch.wait_log(&format!(": {line}"), 1);
    drop(keepwatch);
    // Others can replace it from now on.
    let keepwatch = tracked.world.setup.start();
    tracked.wait_synced(&keepwatch, "backup");
    let calls = tracked.calls();
    set_mode(&tracked.record.join("conntrackd"), 0o757);
    tracked.world.setup.expect(&["conntrackd -"]);
    tracked.world.set_vip(true);
    keepwatch.wait_log("(EPERM)", 4);
    assert_eq!(tracked.calls(), calls);
    set_mode(&tracked.record.join("conntrackd"), 0o755);
    drop(keepwatch);
    tracked.world.set_vip(false);
    // A file that is not executable is skipped without a line.
    set_mode(&program, 0o644);
    fs::remove_dir_all(&second).unwrap();
    fs::remove_file(tracked.world.setup.log_file()).unwrap();
    tracked.wait_synced(&tracked.world.setup.start(), "backup");
    assert!(!tracked.world.setup.log().contains("not run"));
}
