//! Promise 17, and what else is not trusted: sockets, links and directories that others have put there.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;

use lab::files::Directory;
use lab::users::{SOMEBODY, run_as};

use crate::world::{World, setup};

/// Somebody else listens, in a directory of this user, maybe by a symlink. Tells what the daemon with these options
/// says to that, and whether it logs why it says nothing.
fn said_to_somebody(owner: u32, by_symlink: bool, options: &[&str]) -> String {
    let mut world = World::with(options.iter().fold(setup(), |setup, option| setup.with(*option)));
    world.agent.stop(true);
    let (setup, elsewhere) = (&world.setup, Directory::new());
    chown(&setup.conf_dir, Some(if options.is_empty() { 0 } else { SOMEBODY }), None).unwrap();
    chown(&setup.state_path, Some(owner), None).unwrap();
    // It does not matter whose the directory is that the link leads to.
    chown(elsewhere.path(), Some(SOMEBODY), None).unwrap();
    let socket = setup.state_path.join("keepalived-state-change");
    let path = if by_symlink { elsewhere.path().join("socket") } else { socket.clone() };
    fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o1777)).unwrap();
    let listener = run_as(SOMEBODY, || UnixListener::bind(&path).unwrap());
    if by_symlink {
        symlink(path, socket).unwrap();
    }
    let keepwatch = setup.start();
    let mut said = [0; 16];
    let length = listener.accept().unwrap().0.read(&mut said).unwrap();
    if length == 0 {
        let line = "agent not notified: socket owned by untrusted user 12345; retrying\n";
        keepwatch.wait_log(line, 1);
    }
    String::from_utf8(said[..length].to_vec()).unwrap()
}

#[apply(trial_with_other_users)]
fn socket_of_somebody() {
    for by_symlink in [false, true] {
        assert_eq!(said_to_somebody(0, by_symlink, &[]), "", "neither root nor the owner");
    }
    assert_eq!(said_to_somebody(SOMEBODY, false, &[]), "GET / HTTP/1.1\r\n");
    let oneself = ["--user=12345", "--group=12345"];
    assert_eq!(said_to_somebody(0, false, &oneself), "GET / HTTP/1.1\r\n");
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
