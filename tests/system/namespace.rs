//! Promise 10: a namespace that is deleted is let go.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::files::read_all;
use lab::namespace::{Netns, mount_tmpfs, share_mounts, unbind, unbind_elsewhere};
use lab::old_kernel::without_proc;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::net::if_::if_nametoindex;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::world::{VIP, World, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "these are all"))]
    let mut trials = lab::trials![
        // These take the longest.
        entered_by_a_process_that_ends,
        deleted_where_no_mounts_are_shown,
        deleted,
        deleted_in_another_mount_namespace,
        deleted_where_mounts_are_shared,
        deleted_by_a_path_elsewhere,
        deleted_by_a_symlink,
        given_by_a_process_in_it,
        deleted_without_having_been_named,
        deleted_without_an_agent,
        deleted_and_made_anew,
        others_come_and_go,
        none_of_its_own,
        no_namespace,
    ];
    #[cfg(target_arch = "x86_64")]
    trials.extend(lab::trials![made_anew_while_it_is_entered]);
    trials
}

/// A world outside, and a namespace with the VIP in it, that lives as long as its name or somebody
/// inside.
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

    /// The command that starts it in the foreground for the namespace given by its name, or in another
    /// way.
    fn command(&self, namespace: Option<&str>) -> Command {
        let mut command = self.world.setup.command();
        command.arg("--foreground");
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command
    }

    fn netns(&self) -> &Netns {
        self.netns.as_ref().expect("the namespace")
    }

    /// Starts it, deletes the namespace, and waits for all that follows from that.
    fn delete_under(&mut self, command: &mut Command, delete: impl FnOnce(&str)) {
        let daemon = Process(command.spawn().unwrap());
        self.world.agent.wait_acknowledged("master");
        self.netns = None;
        delete(&self.name);
        self.assert_let_go(daemon);
    }

    fn assert_let_go(&self, mut daemon: Process) {
        self.world.agent.wait_acknowledged("backup");
        assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
        assert_released();
        let log = self.world.setup.log();
        assert!(log.contains(": network namespace deleted; exiting\n"), "{log}");
        assert_eq!(self.world.setup.state(), "backup");
        assert!(!self.world.setup.pid_file().exists());
    }
}

/// A process that is ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// With a namespace go its interfaces, and their other ends elsewhere.
fn assert_released() {
    let deadline = Instant::now() + lab::PATIENCE;
    while if_nametoindex("outside").is_ok() {
        assert!(Instant::now() < deadline, "the namespace is still there");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that does nothing in a namespace. It is not waited for.
fn idle_in(netns: &Netns) -> Process {
    Process(netns.run(|| Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn()).unwrap())
}

fn deleted() {
    let mut inside = Inside::new("deleted");
    let mut command = inside.command(Some("deleted"));
    inside.delete_under(&mut command, unbind);
}

fn deleted_in_another_mount_namespace() {
    let mut inside = Inside::new("deleted_elsewhere");
    let mut command = inside.command(Some("deleted_elsewhere"));
    inside.delete_under(&mut command, unbind_elsewhere);
}

fn deleted_where_mounts_are_shared() {
    let directory = lab::files::Directory::new();
    let shared = directory.sub("shared");
    mount_tmpfs(&shared).unwrap();
    share_mounts(&shared).unwrap();
    let name = shared.join("name");
    let mut inside = Inside::new(name.to_str().unwrap());
    let mut command = inside.command(name.to_str());
    inside.delete_under(&mut command, unbind_elsewhere);
}

fn deleted_by_a_path_elsewhere() {
    let directory = lab::files::Directory::new();
    let name = directory.path().join("name");
    let mut inside = Inside::new(name.to_str().unwrap());
    let mut command = inside.command(name.to_str());
    inside.delete_under(&mut command, unbind);
}

fn deleted_by_a_symlink() {
    let mut inside = Inside::new("deleted_by_a_symlink");
    let link = inside.world.setup.directory().join("link");
    symlink("/run/netns/deleted_by_a_symlink", &link).unwrap();
    let mut command = inside.command(link.to_str());
    inside.delete_under(&mut command, unbind);
}

/// What has a name lives as long as that, whatever process is still in it.
fn given_by_a_process_in_it() {
    let mut inside = Inside::new("given_by_a_process_in_it");
    let process = idle_in(inside.netns());
    let path = format!("/proc/{}/ns/net", process.0.id());
    let daemon = Process(inside.command(Some(&path)).spawn().unwrap());
    inside.world.agent.wait_acknowledged("master");
    inside.netns = None;
    unbind(&inside.name);
    inside.world.agent.wait_acknowledged("backup");
    drop(process);
    inside.assert_let_go(daemon);
}

/// A namespace without a name lives as long as a process in it. Nobody has waited for that when it ends.
fn entered_by_a_process_that_ends() {
    let mut inside = Inside::new("entered_by_a_process_that_ends");
    let mut process = idle_in(inside.netns());
    let path = format!("/proc/{}/ns/net", process.0.id());
    symlink(&path, "/run/netns/process").unwrap();
    unbind("entered_by_a_process_that_ends");
    let mut command = inside.command(Some("process"));
    inside.delete_under(&mut command, |_| process.0.kill().unwrap());
    fs::remove_file("/run/netns/process").unwrap();
}

fn deleted_without_having_been_named() {
    for namespace in [None, Some("/proc/self/ns/net")] {
        let mut inside = Inside::new("deleted_without_having_been_named");
        let mut command = inside.command(namespace);
        let daemon = Process(inside.netns().run(|| command.spawn().unwrap()));
        inside.world.agent.wait_acknowledged("master");
        inside.netns = None;
        unbind(&inside.name);
        inside.assert_let_go(daemon);
    }
}

/// Without `/proc` nothing tells, and it has to look now and then.
fn deleted_where_no_mounts_are_shown() {
    let mut inside = Inside::new("deleted_where_no_mounts_are_shown");
    let mut command = inside.command(Some("deleted_where_no_mounts_are_shown"));
    without_proc(&mut command);
    inside.delete_under(&mut command, unbind);
}

/// Nobody can be told; the daemon does not stay for ever because of that.
fn deleted_without_an_agent() {
    let mut inside = Inside::new("deleted_without_an_agent");
    let mut daemon = Process(inside.command(Some("deleted_without_an_agent")).spawn().unwrap());
    inside.world.agent.wait_acknowledged("master");
    inside.world.agent.stop(true);
    unbind("deleted_without_an_agent");
    assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
    assert_eq!(inside.world.setup.state(), "backup");
}

/// It is another namespace, though of the same name.
fn deleted_and_made_anew() {
    let mut inside = Inside::new("deleted_and_made_anew");
    let mut command = inside.command(Some("deleted_and_made_anew"));
    inside.delete_under(&mut command, |name| {
        unbind(name);
        Netns::new().bind(name);
    });
}

/// And that also if it happens before the daemon can look for the first time.
#[cfg(target_arch = "x86_64")]
fn made_anew_while_it_is_entered() {
    let mut inside = Inside::new("made_anew_while_it_is_entered");
    let mut command = inside.command(Some("made_anew_while_it_is_entered"));
    let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_setns);
    inside.netns = None;
    unbind(&inside.name);
    Netns::new().bind(&inside.name);
    inside.assert_let_go(Process(stopped.go_on()));
}

/// What is mounted otherwise is no reason to leave, nor to be awake for long.
fn others_come_and_go() {
    let world = World::with(setup().with("--namespace=one_of_many"));
    Netns::current().bind("one_of_many");
    let keepwatch = world.setup.start();
    for _ in 0..10 {
        Netns::new().bind("another");
        unbind("another");
    }
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    assert_eq!(keepwatch.counter("transitions"), 2);
    keepwatch.wait_asleep();
    // Of these a node has but a few for all its daemons.
    let open = fs::read_dir(format!("/proc/{}/fd", keepwatch.pid())).unwrap();
    let open: Vec<_> = open.map(|fd| fs::read_link(fd.unwrap().path()).unwrap()).collect();
    assert!(!open.iter().any(|file| file.as_os_str() == "anon_inode:inotify"), "{open:?}");
    unbind("one_of_many");
    assert_eq!(keepwatch.wait_exit().unwrap().code(), Some(1));
}

/// What nobody can delete is not looked at.
fn none_of_its_own() {
    for namespace in [None, Some("--namespace=/proc/self/ns/net")] {
        let mut world = World::new();
        world.setup.extra.extend(namespace.map(Into::into));
        let keepwatch = world.setup.start();
        world.agent.wait_acknowledged("backup");
        keepwatch.wait_asleep();
    }
}

/// Anything else than a namespace is refused at once.
fn no_namespace() {
    let setup = setup();
    let (fifo, file) = (setup.directory().join("fifo"), setup.directory().join("file"));
    mkfifo(&fifo, Mode::S_IRUSR).unwrap();
    fs::write(&file, "").unwrap();
    for path in [&fifo, &file, setup.directory()] {
        let namespace = format!("--namespace={}", path.display());
        for how in ["--foreground", "--check"] {
            let mut command = setup.command();
            let streams = command.args([&namespace, how]).stdout(Stdio::piped());
            let mut child = streams.stderr(Stdio::piped()).spawn().unwrap();
            let stderr = read_all(child.stderr.take().unwrap());
            let said = [stderr, read_all(child.stdout.take().unwrap())].concat();
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(1), "{namespace} {how}");
            let said = String::from_utf8(said).unwrap();
            let is_reason = |line: &str| {
                line.contains(path.to_str().unwrap()) && line.ends_with("Invalid argument (EINVAL)")
            };
            assert!(said.lines().any(is_reason), "{said}");
        }
    }
}
