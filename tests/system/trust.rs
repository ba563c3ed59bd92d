//! Promise 17: sockets, symlinks and directories of other users are not trusted.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;

use lab::files::Directory;
use lab::trial::Found;
use lab::users::{OTHER_USER, run_as};

use crate::world::{NO_AGENT, NO_INTERFACE, World, setup};

/// Each list item of the paper names a test, except in the chapter on what an attacker can do.
#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn security_paper_names_its_tests() {
    let trials = lab::inventory::iter::<Found>.into_iter().flat_map(|Found(trials)| trials());
    let known: HashSet<_> = trials.map(|trial| trial.name().to_owned()).collect();
    let (mut named, paper) = (0, include_str!("../../docs/security.md"));
    for comment in paper.split("<!-- tests: ").skip(1) {
        for name in comment.split("-->").next().unwrap().split(',').map(str::trim) {
            assert!(known.contains(name), "{name}");
            named += 1;
        }
    }
    let (before, rest) = paper.split_once("### What an attacker").unwrap();
    let (_, after) = rest.split_once("### Directories").unwrap();
    for item in [before, after].into_iter().flat_map(|part| part.split("\n- ").skip(1)) {
        assert!(item.contains("<!-- tests: "), "{item}");
    }
    assert!(named > 60, "{named}");
}

/// Another user listens, in a directory of `owner` or behind a symlink there. Returns what the daemon with these
/// options sends, and asserts that it logs why it sends nothing.
fn sent_to_untrusted_user(owner: u32, by_symlink: bool, options: &[&str]) -> String {
    let mut world = World::with(options.iter().fold(setup(), |setup, option| setup.with(*option)));
    world.agent.stop(true);
    let (setup, elsewhere) = (&world.setup, Directory::new());
    for directory in [setup.directory(), &setup.conf_dir] {
        chown(directory, Some(if options.is_empty() { 0 } else { OTHER_USER }), None).unwrap();
    }
    chown(&setup.state_path, Some(owner), None).unwrap();
    // The owner of the symlink's target directory does not matter.
    chown(elsewhere.path(), Some(OTHER_USER), None).unwrap();
    let socket = setup.state_path.join("keepalived-state-change");
    let path = if by_symlink { elsewhere.path().join("socket") } else { socket.clone() };
    fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o1777)).unwrap();
    let listener = run_as(OTHER_USER, || UnixListener::bind(&path).unwrap());
    if by_symlink {
        symlink(path, socket).unwrap();
    }
    // The listener closes after it has read.
    setup.expect(&["agent not notified: "]);
    let keepwatch = setup.start();
    let mut sent = [0; 16];
    let length = listener.accept().unwrap().0.read(&mut sent).unwrap();
    if length == 0 {
        let line = "agent not notified: socket owned by untrusted user 12345; retrying at ";
        keepwatch.wait_log(line, 1);
    }
    String::from_utf8(sent[..length].to_vec()).unwrap()
}

#[apply(trial_with_other_users)]
fn socket_of_untrusted_user() {
    for by_symlink in [false, true] {
        assert_eq!(sent_to_untrusted_user(0, by_symlink, &[]), "", "neither root nor the owner");
    }
    assert_eq!(sent_to_untrusted_user(OTHER_USER, false, &[]), "GET / HTTP/1.1\r\n");
    let oneself = ["--user=12345", "--group=12345"];
    assert_eq!(sent_to_untrusted_user(0, false, &oneself), "GET / HTTP/1.1\r\n");
}

#[apply(trial)]
fn world_writable_directory() {
    for (mode, warned) in [(0o777, 1), (0o1777, 1), (0o775, 0)] {
        let world = World::new();
        fs::set_permissions(&world.setup.conf_dir, Permissions::from_mode(mode)).unwrap();
        let keepwatch = world.setup.start();
        keepwatch.wait_log("Notified agent router", 1);
        world.setup.expect(&["world-writable directory: "]);
        let line =
            format!("WARNING keepwatch [-] {}: world-writable directory:", world.setup.router);
        assert_eq!(world.setup.log().matches(&line).count(), warned, "{mode:o}");
    }
}

/// Each other file of the daemon's in a world-writable directory is warned of, too.
#[apply(trial)]
fn files_in_world_writable_directories() {
    let mut setup = setup();
    let [metrics, log, pid] = ["metrics", "log", "pid"].map(|name| {
        let directory = setup.directory().join(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        directory.join(name)
    });
    setup.extra.extend(
        [("metrics-file", &metrics), ("log-file", &log), ("pid_file", &pid)]
            .map(|(option, path)| format!("--{option}={}", path.display()).into()),
    );
    let report = setup.check().1;
    for (what, path) in [("metrics file", metrics), ("log", log), ("pid file", pid)] {
        let directory = path.parent().unwrap().display();
        let line =
            format!("world-writable directory: {directory}; any user can replace the {what} (");
        assert_eq!(report.matches(&line).count(), 1, "{report}");
    }
}

/// In a world-writable directory, any user can create the agent's directory, and its owner is trusted.
#[apply(trial_with_other_users)]
fn agent_directory_below_a_world_writable_one() {
    for (mode, owner, warned) in [
        (0o1777, None, 1),
        (0o1777, Some(0), 0),
        (0o1777, Some(OTHER_USER), 1),
        (0o777, Some(0), 1),
        (0o775, None, 0),
    ] {
        let mut setup = setup();
        let parent = setup.directory().join("parent");
        fs::create_dir(&parent).unwrap();
        setup.state_path = parent.join("agent");
        if owner.is_some() {
            fs::create_dir(&setup.state_path).unwrap();
            chown(&setup.state_path, owner, None).unwrap();
        }
        fs::set_permissions(&parent, Permissions::from_mode(mode)).unwrap();
        lab::namespace::Netns::new().enter();
        setup.expect(&[NO_AGENT, NO_INTERFACE, "is trusted as agent"]);
        let line = format!(
            "world-writable directory: {}; the creator of {} is trusted as agent: choose another --state_path\n",
            parent.display(),
            setup.state_path.display()
        );
        assert_eq!(setup.check().1.matches(&line).count(), warned, "{mode:o} {owner:?}");
        let keepwatch = setup.start();
        keepwatch.wait_log("Wrote router", 1);
        assert_eq!(setup.log().matches(&line).count(), warned, "{mode:o} {owner:?}");
    }
}
