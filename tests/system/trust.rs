//! Promise 17, and what else is not trusted: sockets, links and directories that others have put there.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use lab::users::{SOMEBODY, run_as};

use crate::world::{World, setup};

/// Listens as somebody else.
fn listen_as(user: u32, path: &Path) -> UnixListener {
    let directory = path.parent().unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
    run_as(user, || UnixListener::bind(path).unwrap())
}

/// Whoever listens is told nothing, and the log says why.
fn assert_told_nothing(world: &World, listener: &UnixListener) {
    let keepwatch = world.setup.start();
    let line = "agent not notified: socket owned by untrusted user 12345; retrying\n";
    keepwatch.wait_log(line, 1);
    let mut said = String::new();
    listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

/// A world whose agent is gone with its socket.
fn world(setup: lab::daemon::Setup) -> World {
    let mut world = World::with(setup);
    world.agent.stop(true);
    world
}

fn socket(world: &World) -> std::path::PathBuf {
    world.setup.state_path.join("keepalived-state-change")
}

#[apply(trial_with_other_users)]
fn socket_of_another_user() {
    let world = world(setup());
    assert_told_nothing(&world, &listen_as(SOMEBODY, &socket(&world)));
}

#[apply(trial_with_other_users)]
fn symlink_to_a_socket_of_another_user() {
    let world = world(setup());
    // It does not matter whose the directory is that the link leads to.
    let elsewhere = lab::files::Directory::new();
    chown(elsewhere.path(), Some(SOMEBODY), None).unwrap();
    let listener = listen_as(SOMEBODY, &elsewhere.path().join("socket"));
    symlink(elsewhere.path().join("socket"), socket(&world)).unwrap();
    assert_told_nothing(&world, &listener);
}

fn assert_told(world: &World, listener: &UnixListener) {
    let keepwatch = world.setup.start();
    let (mut stream, _) = listener.accept().unwrap();
    let mut said = [0; 512];
    let length = stream.read(&mut said).unwrap();
    assert!(said[..length].starts_with(b"GET / HTTP/1.1\r\n"));
    drop(keepwatch);
}

#[apply(trial_with_other_users)]
fn socket_of_the_owner_of_its_directory() {
    let world = world(setup());
    let listener = listen_as(SOMEBODY, &socket(&world));
    chown(&world.setup.state_path, Some(SOMEBODY), None).unwrap();
    assert_told(&world, &listener);
}

#[apply(trial_with_other_users)]
fn socket_of_oneself() {
    let world = world(setup().with("--user=12345").with("--group=12345"));
    chown(&world.setup.conf_dir, Some(SOMEBODY), None).unwrap();
    let listener = listen_as(SOMEBODY, &socket(&world));
    assert_told(&world, &listener);
}

#[apply(trial)]
fn world_writable_directory() {
    for (mode, warned) in [(0o777, 1), (0o1777, 1), (0o775, 0)] {
        let world = World::new();
        fs::set_permissions(&world.setup.conf_dir, Permissions::from_mode(mode)).unwrap();
        let keepwatch = world.setup.start();
        keepwatch.wait_log("Notified agent router", 1);
        let line =
            format!("WARNING keepwatch [-] {}: world-writable directory:", world.setup.router);
        assert_eq!(world.setup.log().matches(&line).count(), warned, "{mode:o}");
    }
}

/// Whoever makes it owns it, and so is trusted.
#[apply(trial)]
fn agent_directory_that_anybody_can_make() {
    for (mode, exists, warned) in
        [(0o1777, false, 1), (0o1777, true, 0), (0o777, true, 1), (0o775, false, 0)]
    {
        let mut setup = setup();
        let parent = setup.directory().join("parent");
        fs::create_dir(&parent).unwrap();
        setup.state_path = parent.join("agent");
        if exists {
            fs::create_dir(&setup.state_path).unwrap();
        }
        fs::set_permissions(&parent, Permissions::from_mode(mode)).unwrap();
        lab::namespace::Netns::new().enter();
        let keepwatch = setup.start();
        keepwatch.wait_log("Wrote router", 1);
        let line = format!(
            "world-writable directory: {}; who makes {} is trusted as agent\n",
            parent.display(),
            setup.state_path.display()
        );
        assert_eq!(setup.log().matches(&line).count(), warned, "{mode:o} {exists}");
    }
}
