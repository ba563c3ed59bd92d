//! Promise 10: a namespace that is deleted is let go.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use lab::ending::Watched;
use lab::files::look;
use lab::namespace::{Netns, unbind, unbind_elsewhere};
use lab::old_kernel::without_proc;
use lab::rtnl::Rtnl;
use nix::net::if_::if_nametoindex;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::{Killed, VIP, World, add_interface, setup};

/// A world outside, and a namespace with the VIP in it, that lives as long as its name or somebody inside.
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

    /// The command that starts it in the foreground for the namespace given by its name, or in another way.
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

    /// Deletes the namespace, and waits for all that follows from that.
    fn delete_under(&mut self, daemon: Killed, delete: impl FnOnce(&str)) {
        let watched = Watched::new(daemon.0.id());
        self.world.agent.wait_acknowledged("master");
        drop(watched);
        self.netns = None;
        delete(&self.name);
        self.assert_let_go(daemon);
    }

    fn assert_let_go(&self, mut daemon: Killed) {
        let watched = Watched::new(daemon.0.id());
        self.world.agent.wait_acknowledged("backup");
        drop(watched);
        assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
        // With a namespace go its interfaces, and their other ends elsewhere.
        look("the namespace to go", || if_nametoindex("outside").is_err());
        let log = self.world.setup.log();
        assert!(log.contains(": network namespace deleted; exiting\n"), "{log}");
        assert_eq!(self.world.setup.state(), "backup");
        assert!(!self.world.setup.pid_file().exists());
    }
}

/// Whether it is given by that or, as the present one, not at all; also from another mount namespace.
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

/// The file itself is elsewhere, or a symlink that leads to it.
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

/// A namespace without a name lives as long as a process in it. Nobody has waited for that when it ends.
#[apply(trial)]
fn entered_by_a_process_that_ends() {
    let mut inside = Inside::new("entered_by_a_process_that_ends");
    let mut idle = Command::new("sleep");
    let mut process = Killed(inside.netns().run(|| idle.arg("1000").spawn().unwrap()));
    let path = format!("/proc/{}/ns/net", process.0.id());
    symlink(&path, "/run/netns/process").unwrap();
    unbind("entered_by_a_process_that_ends");
    let daemon = inside.spawn(Some("process"));
    inside.delete_under(daemon, |_| process.0.kill().unwrap());
    fs::remove_file("/run/netns/process").unwrap();
}

/// Without `/proc` nothing tells, and it has to look now and then.
#[apply(trial)]
fn deleted_where_no_mounts_are_shown() {
    let mut inside = Inside::new("deleted_where_no_mounts_are_shown");
    let mut command = inside.command(Some("deleted_where_no_mounts_are_shown"));
    without_proc(&mut command);
    let daemon = Killed(command.spawn().unwrap());
    inside.delete_under(daemon, unbind);
}

/// And that also if it happens before the daemon can look for the first time.
#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn made_anew_while_it_is_entered() {
    let mut inside = Inside::new("made_anew_while_it_is_entered");
    let mut command = inside.command(Some("made_anew_while_it_is_entered"));
    let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_setns);
    inside.netns = None;
    unbind(&inside.name);
    Netns::new().bind(&inside.name);
    inside.assert_let_go(Killed(stopped.go_on()));
}

/// What is mounted otherwise is no reason to leave, nor to be awake for long.
#[apply(trial)]
fn others_come_and_go() {
    let world = World::with(setup().with("--namespace=one_of_many"));
    Netns::current().bind("one_of_many");
    let keepwatch = world.setup.start();
    for _ in 0..10 {
        Netns::new().bind("another");
        unbind("another");
    }
    world.tell(true);
    assert_eq!(keepwatch.counter("transitions"), 2);
    keepwatch.wait_asleep();
    // Of inotify instances a node has but a few for all its daemons.
    let fds = fs::read_dir(format!("/proc/{}/fd", keepwatch.pid())).unwrap();
    for fd in fds {
        assert_ne!(fs::read_link(fd.unwrap().path()).unwrap().as_os_str(), "anon_inode:inotify");
    }
    unbind("one_of_many");
    keepwatch.wait_log("network namespace deleted; exiting", 1);
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}

/// Anything else than a namespace is refused at once.
#[apply(trial)]
fn no_namespace() {
    let setup = setup();
    let (fifo, file) = (setup.directory().join("fifo"), setup.directory().join("file"));
    mkfifo(&fifo, Mode::S_IRUSR).unwrap();
    fs::write(&file, "").unwrap();
    for path in [&fifo, &file, setup.directory()] {
        for how in ["--foreground", "--check"] {
            let namespace = format!("--namespace={}", path.display());
            let output = setup.command().args([&namespace, how]).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{namespace} {how}");
            let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
            let is_reason = |line: &str| {
                line.contains(path.to_str().unwrap()) && line.ends_with("Invalid argument (EINVAL)")
            };
            assert!(said.lines().any(is_reason), "{said}");
        }
    }
}
