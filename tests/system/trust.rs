//! Promise 17, and what else is not trusted: sockets, links and directories that others have put there.

use std::fs::{self, Permissions, hard_link};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use lab::agent::Agent;
use lab::trial::with_other_users;
use lab::users::{SOMEBODY, run_as};
use libtest_mimic::Trial;

use crate::world::{Killed, World, setup};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        log_is_a_link,
        pid_file_is_a_link,
        world_writable_directory,
        symlink_to_the_agent,
    ];
    trials.extend(with_other_users(lab::trials![
        socket_of_another_user,
        symlink_to_a_socket_of_another_user,
        socket_of_the_owner_of_its_directory,
        socket_of_oneself,
        socket_of_somebody_unknown,
    ]));
    trials
}

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

fn socket_of_another_user() {
    let world = world(setup());
    assert_told_nothing(&world, &listen_as(SOMEBODY, &socket(&world)));
}

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

fn socket_of_the_owner_of_its_directory() {
    let world = world(setup());
    let listener = listen_as(SOMEBODY, &socket(&world));
    chown(&world.setup.state_path, Some(SOMEBODY), None).unwrap();
    assert_told(&world, &listener);
}

fn socket_of_oneself() {
    let world = world(setup().with("--user=12345").with("--group=12345"));
    chown(&world.setup.conf_dir, Some(SOMEBODY), None).unwrap();
    let listener = listen_as(SOMEBODY, &socket(&world));
    assert_told(&world, &listener);
}

/// Of whom it leads to, it does not matter how.
fn symlink_to_the_agent() {
    let setup = setup();
    let target = setup.directory().join("agent-elsewhere");
    fs::create_dir(&target).unwrap();
    let agent = Agent::start(&target);
    symlink(
        target.join("keepalived-state-change"),
        setup.state_path.join("keepalived-state-change"),
    )
    .unwrap();
    let _keepwatch = setup.start();
    agent.wait_acknowledged("backup");
}

/// Root does not append to what others have linked to.
fn log_is_a_link() {
    // In the words of glibc and of musl.
    let symlinks =
        ["Too many levels of symbolic links (ELOOP)", "Symbolic link loop (ELOOP)"].as_slice();
    for (make, errors) in
        [(symlink as fn(_, _) -> _, symlinks), (hard_link, &["Too many links (EMLINK)"])]
    {
        let setup = setup();
        let precious = setup.directory().join("precious");
        fs::write(&precious, "precious").unwrap();
        make(precious.clone(), setup.log_file()).unwrap();
        let output = setup.run();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let log_file = setup.log_file();
        let is = |error| said == format!("keepwatch: log file {}: {error}\n", log_file.display());
        assert!(errors.iter().any(is), "{said}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }
}

fn pid_file_is_a_link() {
    let setup = setup();
    let precious = setup.directory().join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, setup.pid_file()).unwrap();
    let output = setup.run();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("(ELOOP)"), "{output:?}");
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}

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

/// To a user namespace all whom it has no number for are the same.
fn socket_of_somebody_unknown() {
    let setup = setup();
    chown(&setup.state_path, Some(SOMEBODY), None).unwrap();
    let path = setup.state_path.join("keepalived-state-change");
    let listener = listen_as(SOMEBODY + 1, &path);
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let keepwatch = setup.command();
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(keepwatch.get_program());
    let _keepwatch =
        Killed(command.args(keepwatch.get_args()).arg("--foreground").spawn().unwrap());
    let watch = lab::files::Watch::new(&setup.conf_dir);
    let line = "agent not notified: socket owned by untrusted user 65534; retrying\n";
    watch.until(line, || setup.log().contains(line).then_some(()));
    let mut said = String::new();
    listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}
