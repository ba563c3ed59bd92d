//! Promise 10: the daemon releases a deleted namespace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::ending::Watched;
use lab::files::{content, look};
use lab::namespace::{Netns, unbind, unbind_elsewhere};
use lab::old_kernel::without_proc;
use lab::rtnl::Rtnl;
use nix::mount::{MntFlags, umount2};
use nix::net::if_::if_nametoindex;

use crate::world::{Killed, VIP, World, add_interface, setup};

/// A world outside, and a namespace that contains the VIP and lives as long as its name or a process inside.
struct Inside {
    world: World,
    netns: Option<Netns>,
    name: String,
}

impl Inside {
    fn new(name: &str) -> Self {
        let world = World::new();
        let netns = Netns::new();
        netns.bind(name);
        world.rtnl.add_veth("outside", "within");
        world.rtnl.move_to("within", &netns);
        netns.run(|| {
            let rtnl = Rtnl::new();
            add_interface(&rtnl, "ha0");
            rtnl.add_address("ha0", VIP);
        });
        Self { world, netns: Some(netns), name: name.into() }
    }

    /// Returns the command that starts a daemon in the foreground, by default in the caller's namespace.
    fn command(&self, namespace: Option<&str>) -> Command {
        let mut command = self.world.setup.command();
        command.arg("--foreground");
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command
    }

    fn netns(&self) -> &Netns {
        self.netns.as_ref().expect("the namespace")
    }

    fn spawn(&self, namespace: Option<&str>) -> Killed {
        Killed(self.command(namespace).spawn().unwrap())
    }

    /// Deletes the namespace, and asserts that the daemon releases it.
    fn delete_under(&mut self, daemon: Killed, delete: impl FnOnce(&str)) {
        let watched = Watched::new(daemon.0.id());
        self.world.agent.wait_acknowledged("master");
        drop(watched);
        self.netns = None;
        delete(&self.name);
        self.assert_released(daemon);
    }

    fn assert_released(&self, mut daemon: Killed) {
        let watched = Watched::new(daemon.0.id());
        self.world.agent.wait_acknowledged("backup");
        drop(watched);
        assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
        // A namespace's interfaces end with it, and so do their peers elsewhere.
        look("the namespace to end", || if_nametoindex("outside").is_err());
        let log = self.world.setup.log();
        assert!(log.contains(": network namespace deleted; exiting\n"), "{log}");
        assert_eq!(self.world.setup.state(), "backup");
        assert!(!self.world.setup.pid_file().exists());
    }
}

/// The daemon is given the name, or inherits the namespace. The name is deleted here or in another mount namespace.
#[apply(trial)]
fn deleted_by_its_name() {
    for (namespace, delete) in
        [(Some("deleted"), unbind as fn(&str)), (None, unbind), (None, unbind_elsewhere)]
    {
        let mut inside = Inside::new("deleted");
        let mut command = inside.command(namespace);
        let daemon = Killed(inside.netns().run(|| command.spawn().unwrap()));
        inside.delete_under(daemon, delete);
    }
}

/// The namespace is given by a file elsewhere, or by a symlink to it.
#[apply(trial)]
fn deleted_by_other_paths() {
    let directory = lab::files::Directory::new();
    let [name, link] = ["name", "link"].map(|file| directory.path().join(file));
    symlink(&name, &link).unwrap();
    for path in [&name, &link] {
        let mut inside = Inside::new(name.to_str().unwrap());
        let daemon = inside.spawn(path.to_str());
        inside.delete_under(daemon, unbind);
    }
}

/// Only another mount namespace has the namespace at this path; here it is another one, and no deletion.
#[apply(trial)]
fn path_through_another_mount_namespace() {
    let mut inside = Inside::new("through");
    let mut idle = Command::new("unshare");
    let process = Killed(idle.args(["--mount", "sleep", "1000"]).spawn().unwrap());
    let name = format!("/proc/{}/comm", process.0.id());
    look("its mounts", || content(Path::new(&name)) == "sleep\n");
    // Without the file, it would be gone there, too.
    umount2("/run/netns/through", MntFlags::MNT_DETACH).unwrap();
    Netns::new().bind("through");
    let path = format!("/proc/{}/root/run/netns/through", process.0.id());
    let mut daemon = inside.spawn(Some(&path));
    inside.world.agent.wait_acknowledged("master");
    sleep(Duration::from_secs(1));
    assert_eq!(daemon.0.try_wait().unwrap(), None);
    let target = format!("--target={}", process.0.id());
    inside.delete_under(daemon, |_| {
        let mut umount = Command::new("nsenter");
        umount.args([&*target, "--mount", "umount", "/run/netns/through"]);
        assert!(umount.status().unwrap().success());
    });
    assert!(!inside.world.setup.log().contains("cannot watch"));
    unbind("through");
}

/// A namespace without a name lives as long as a process in it, which may stay a zombie.
#[apply(trial)]
fn namespace_ends_with_its_process() {
    let mut inside = Inside::new("namespace_ends_with_its_process");
    let mut idle = Command::new("sleep");
    let mut process = Killed(inside.netns().run(|| idle.arg("1000").spawn().unwrap()));
    let path = format!("/proc/{}/ns/net", process.0.id());
    symlink(format!("../../{path}"), "/run/netns/process").unwrap();
    symlink("process", "/run/netns/link").unwrap();
    unbind("namespace_ends_with_its_process");
    let daemon = inside.spawn(Some("link"));
    inside.delete_under(daemon, |_| process.0.kill().unwrap());
    fs::remove_file("/run/netns/process").unwrap();
    fs::remove_file("/run/netns/link").unwrap();
}

/// The namespace outlives one of its names, which is not the one that was given.
#[apply(trial)]
fn one_of_several_names_goes() {
    for (goes, stays) in [("first", "second"), ("second", "first")] {
        let inside = Inside::new("first");
        inside.netns().bind("second");
        let mut command = inside.command(None);
        let mut daemon = Killed(inside.netns().run(|| command.spawn().unwrap()));
        inside.world.agent.wait_acknowledged("master");
        unbind(goes);
        sleep(Duration::from_secs(2));
        assert_eq!(daemon.0.try_wait().unwrap(), None, "without {goes}");
        unbind(stays);
    }
}

/// A name that the namespace has for a while, as by `ip netns attach`, was not given.
#[apply(trial)]
fn name_comes_and_goes_beside_the_process() {
    let mut inside = Inside::new("name_comes_and_goes");
    let mut idle = Command::new("sleep");
    let mut process = Killed(inside.netns().run(|| idle.arg("1000").spawn().unwrap()));
    let mut daemon = inside.spawn(Some(&format!("/proc/{}/ns/net", process.0.id())));
    inside.world.agent.wait_acknowledged("master");
    unbind("name_comes_and_goes");
    sleep(Duration::from_secs(2));
    assert_eq!(daemon.0.try_wait().unwrap(), None);
    inside.delete_under(daemon, |_| process.0.kill().unwrap());
}

/// Without `/proc` there are no events of mounts, so the daemon polls.
#[apply(trial)]
fn deleted_without_proc() {
    let mut inside = Inside::new("deleted_without_proc");
    let mut command = inside.command(Some("deleted_without_proc"));
    without_proc(&mut command);
    let daemon = Killed(command.spawn().unwrap());
    inside.delete_under(daemon, unbind);
}

/// The namespace is deleted before the daemon's first check.
#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn recreated_during_start() {
    let mut inside = Inside::new("recreated_during_start");
    let mut command = inside.command(Some("recreated_during_start"));
    let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_setns);
    inside.netns = None;
    unbind(&inside.name);
    Netns::new().bind(&inside.name);
    inside.assert_released(Killed(stopped.go_on()));
}

/// Other mounts make the daemon neither exit nor stay awake.
#[apply(trial)]
fn other_namespaces_come_and_go() {
    let world = World::with(setup().with("--namespace=one_of_many"));
    Netns::current().bind("one_of_many");
    let keepwatch = world.setup.start();
    keepwatch.wait_asleep();
    let (begin, wakes) = (Instant::now(), keepwatch.wakes());
    for _ in 0..50 {
        Netns::new().bind("another");
        unbind("another");
    }
    // The namespace is checked at most once a second.
    let (wakes, seconds) = (keepwatch.wakes() - wakes, begin.elapsed().as_secs() + 1);
    assert!(wakes <= 10 * seconds, "{wakes} wake-ups in {seconds} s");
    world.deliver(true);
    assert_eq!(keepwatch.counter("transitions"), 2);
    keepwatch.wait_asleep();
    // Inotify instances are scarce on a node with many daemons.
    let fds = fs::read_dir(format!("/proc/{}/fd", keepwatch.pid())).unwrap();
    for fd in fds {
        assert_ne!(fs::read_link(fd.unwrap().path()).unwrap().as_os_str(), "anon_inode:inotify");
    }
    unbind("one_of_many");
    keepwatch.wait_log("network namespace deleted; exiting", 1);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}
