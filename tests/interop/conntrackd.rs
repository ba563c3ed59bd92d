//! Promise 13 with conntrackd: two nodes, configured as Neutron does, synchronise at each transition, so that
//! a connection survives the failover.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::agent::Agent;
use lab::daemon::{Running, Setup};
use lab::files::{Watch, content};
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::unistd::User;

use crate::output;
use crate::world::{VIP, setup, up_quietly};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        connection_survives_failover,
        also_as_nobody,
        also_with_a_directory_of_nobodys,
        conntrackd_is_not_there,
        hostile_configurations,
    ]
}

fn connection_survives_failover() {
    play(Whose::Roots);
}

/// conntrackd's control socket belongs to root.
fn also_as_nobody() {
    play(Whose::Users("nobody"));
}

fn also_with_a_directory_of_nobodys() {
    play(Whose::Directory("nobody"));
}

/// Whose the configuration is.
#[derive(Clone, Copy)]
enum Whose {
    Roots,
    /// Of the user that the daemon becomes.
    Users(&'static str),
    /// Of a user, and the daemon remains root.
    Directory(&'static str),
}

impl Whose {
    fn owner(self) -> Option<&'static str> {
        match self {
            Self::Roots => None,
            Self::Users(user) | Self::Directory(user) => Some(user),
        }
    }
}

/// What conntrackd logs for each command, in the order of the commands.
const ACTIVE: [&str; 4] = [
    "committing all external caches",
    "flushing caches",
    "resync with master conntrack table",
    "sending bulk update",
];
const BACKUP: [&str; 2] = ["flushing conntrack table in 60 secs", "resync requested"];

fn play(whose: Whose) {
    let (left, right) = (Node::new(1, whose), Node::new(2, whose));
    connect(&left, &right);
    let _conntrackd = [left.start_conntrackd(), right.start_conntrackd()];
    let keepwatch = [left.start_keepwatch(), right.start_keepwatch()];
    for (node, keepwatch) in [&left, &right].into_iter().zip(&keepwatch) {
        node.wait_synced(keepwatch, "backup", &BACKUP);
    }

    left.set_vip(true);
    left.wait_synced(&keepwatch[0], "primary", &ACTIVE);
    left.netns.run(|| {
        let flow = "-I -p tcp -s 10.0.0.2 -d 198.51.100.7 --sport 1234 --dport 80 \
            --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 600";
        output("conntrack", &flow.split_whitespace().collect::<Vec<_>>());
    });
    right.wait_external_connection();

    left.set_vip(false);
    left.wait_synced(&keepwatch[0], "backup", &BACKUP);
    right.set_vip(true);
    right.wait_synced(&keepwatch[1], "primary", &ACTIVE);
    let flows = right.netns.run(|| output("conntrack", &["-L"]));
    assert!(flows.contains("src=10.0.0.2 dst=198.51.100.7 sport=1234 dport=80"), "{flows:?}");
    for keepwatch in keepwatch {
        let uid = if let Whose::Users(name) = whose { user_id(name).0 } else { 0 }.to_string();
        assert_eq!(keepwatch.proc_status("Uid").split_whitespace().next(), Some(uid.as_str()));
        assert_eq!(keepwatch.counter("command_failures"), 0);
    }
}

/// The commands fail, are run all the same, and the agent is told.
fn conntrackd_is_not_there() {
    let (node, other) = (Node::new(1, Whose::Roots), Node::new(2, Whose::Roots));
    connect(&node, &other);
    node.configure();
    let keepwatch = node.start_keepwatch();
    node.wait_commands_end(&keepwatch, "backup");
    node.set_vip(true);
    node.wait_commands_end(&keepwatch, "primary");
    node.agent.wait_acknowledged("primary");
    assert_eq!(keepwatch.counter("command_failures"), 6);
    keepwatch.wait_log("t connect: is conntrackd running?", 6);
}

/// What a hostile user can write there has root read, write and connect to nothing of its own.
fn hostile_configurations() {
    let (node, other) = (Node::new(1, Whose::Users("nobody")), Node::new(2, Whose::Roots));
    connect(&node, &other);
    let directory = node.setup.directory();
    let of_root = |name: &str| {
        let path = directory.join(name);
        std::fs::write(&path, "hidden { in a file of root }\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (secret, log) = (of_root("secret"), of_root("log"));
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let usual = node.text();
    let own = node.setup.conf_dir.display().to_string();
    let path = |path: &Path| path.display().to_string();
    let alias = node.setup.conf_dir.join("alias.ctl");
    std::os::unix::fs::symlink(&socket, &alias).unwrap();
    let texts = [
        // Another's socket, by its name, by a link to it, and out of the directory.
        usual.replace(&format!("{own}/conntrackd.ctl"), &path(&socket)),
        usual.replace(&format!("{own}/conntrackd.ctl"), &path(&alias)),
        usual.replace(&format!("{own}/conntrackd.ctl"), &format!("{own}/../socket")),
        // Files to be written to.
        usual.replace(&format!("{own}/conntrackd.log"), &path(&log)),
        usual.replace(&format!("{own}/conntrackd.lock"), &path(&log)),
        // A file to be read, and a library to be run.
        format!("include {}\n", path(&secret)),
        format!("{usual}\nHelper {{ Type ../../../../{} inet tcp {{ }} }}\n", path(&secret)),
        usual.replace("General {", "General {\n Scheduler {\n Type FIFO\n Priority 99\n }\n"),
    ];
    std::fs::write(node.configuration(), &usual).unwrap();
    let keepwatch = node.start_keepwatch();
    node.wait_commands_end(&keepwatch, "backup");
    for (n, text) in texts.iter().enumerate() {
        std::fs::write(node.configuration(), text).unwrap();
        node.run_all(&keepwatch, n);
    }
    std::fs::remove_file(node.configuration()).unwrap();
    std::os::unix::fs::symlink(&secret, node.configuration()).unwrap();
    node.run_all(&keepwatch, texts.len());
    let said = node.setup.log();
    assert!(said.contains("(ELOOP)") && said.contains("syntax error"), "{said}");
    assert!(!said.contains("hidden"), "{said}");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(content(&log), content(&secret));
    assert_eq!(content(&log), "hidden { in a file of root }\n");
}

/// A network namespace with the HA interface, which belongs to a user as far as it has to.
struct Node {
    number: u8,
    netns: Netns,
    rtnl: Rtnl,
    setup: Setup,
    agent: Agent,
    /// How much of conntrackd's log has been checked.
    checked: Cell<usize>,
}

impl Node {
    fn new(number: u8, whose: Whose) -> Self {
        let netns = Netns::new();
        let rtnl = netns.run(Rtnl::new);
        let mut setup = setup().with("--active-word=primary").with("--enable_conntrackd");
        let agent = Agent::start(&setup.state_path);
        if let Whose::Users(user) = whose {
            setup = setup.with(format!("--user={user}"));
        }
        if let Some(user) = whose.owner() {
            let (uid, gid) = user_id(user);
            let socket = setup.state_path.join("keepalived-state-change");
            for path in [&setup.conf_dir, &setup.state_path, &socket] {
                chown(path, Some(uid), Some(gid)).expect("to be root");
            }
            let anybody = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(setup.directory(), anybody).unwrap();
        }
        Self { number, netns, rtnl, setup, agent, checked: Cell::new(0) }
    }

    fn address(&self) -> String {
        format!("169.254.192.{}", self.number)
    }

    /// Writes the configuration as Neutron does, but with a log file.
    fn configure(&self) {
        std::fs::write(self.configuration(), self.text()).unwrap();
    }

    fn configuration(&self) -> PathBuf {
        self.setup.conf_dir.join("conntrackd.conf")
    }

    fn text(&self) -> String {
        let (directory, address) = (self.setup.conf_dir.display(), self.address());
        format!(
            "General {{
    HashSize 32768
    HashLimit 131072
    LogFile {directory}/conntrackd.log
    LockFile {directory}/conntrackd.lock
    UNIX {{
        Path {directory}/conntrackd.ctl
    }}
    SocketBufferSize 262142
    SocketBufferSizeMaxGrown 655355
    Filter From Kernelspace {{
        Protocol Accept {{
            TCP
            UDP
        }}
        Address Ignore {{
            IPv4_address 127.0.0.1
            IPv4_address {address}
        }}
    }}
}}
Sync {{
    Mode FTFW {{
    }}
    Multicast Default {{
        IPv4_address 225.0.0.50
        IPv4_interface {address}
        Group 3785
        Interface ha0
        SndSocketBuffer 24985600
        RcvSocketBuffer 24985600
        Checksum on
    }}
}}
"
        )
    }

    /// Starts conntrackd and waits until it serves.
    fn start_conntrackd(&self) -> Conntrackd {
        self.configure();
        let files = Watch::new(&self.setup.conf_dir);
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(self.setup.conf_dir.join("conntrackd.conf"));
        // It repeats its log there.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let conntrackd = Conntrackd(self.netns.run(|| command.spawn()).expect("conntrackd"));
        files.until(format!("conntrackd to serve: {}", self.conntrackd_log()), || {
            self.conntrackd_log().contains("-- starting in console mode --").then_some(())
        });
        conntrackd
    }

    fn conntrackd_log(&self) -> String {
        content(&self.setup.conf_dir.join("conntrackd.log"))
    }

    fn start_keepwatch(&self) -> Running<'_> {
        self.netns.run(|| self.setup.start())
    }

    fn set_vip(&self, present: bool) {
        self.netns.run(|| self.rtnl.set_address("ha0", VIP, present));
    }

    /// Waits until keepwatch has synchronised for a state, and checks what conntrackd did since the
    /// last time. Among that is also what the other node asked for.
    fn wait_synced(&self, keepwatch: &Running, state: &str, commands: &[&str]) {
        self.wait_commands_end(keepwatch, state);
        self.agent.wait_acknowledged(state);
        let log = self.conntrackd_log();
        let new = &log[self.checked.replace(log.len())..];
        let mut lines = new.lines();
        let in_order = commands.iter().all(|command| lines.any(|line| line.ends_with(command)));
        assert!(in_order, "{commands:?} in\n{new}");
    }

    /// Has every command run, for the so many-th time.
    fn run_all(&self, keepwatch: &Running, times: usize) {
        for (present, state, before) in [(true, "primary", 0), (false, "backup", 1)] {
            self.set_vip(present);
            let line = format!("Synced connection tracking state on {state} for");
            keepwatch.wait_log(&line, times + 1 + before);
        }
    }

    fn wait_commands_end(&self, keepwatch: &Running, state: &str) {
        let router = &self.setup.router;
        let line = format!("Synced connection tracking state on {state} for router {router}");
        keepwatch.wait(&line, || {
            let log = self.setup.log();
            log.lines().rfind(|line| line.contains("Synced")).is_some_and(|l| l.ends_with(&line))
        });
    }

    /// Waits until conntrackd knows a connection of the other node.
    fn wait_external_connection(&self) {
        let config = self.setup.conf_dir.join("conntrackd.conf");
        let arguments = ["-C", config.to_str().unwrap(), "-e"];
        let deadline = Instant::now() + lab::PATIENCE;
        while !output("conntrackd", &arguments).contains("src=10.0.0.2") {
            assert!(
                Instant::now() < deadline,
                "no external connection:\n{}",
                self.conntrackd_log()
            );
            // Nothing tells of it, so it has to be looked at now and then.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Connects the HA interfaces of two nodes.
fn connect(left: &Node, right: &Node) {
    left.netns.run(|| {
        left.rtnl.add_veth("ha0", "ha-peer");
        left.rtnl.move_to("ha-peer", &right.netns);
    });
    right.netns.run(|| right.rtnl.rename("ha-peer", "ha0"));
    for node in [left, right] {
        node.netns.run(|| {
            up_quietly(&node.rtnl, "ha0");
            node.rtnl.add_address("ha0", &format!("{}/18", node.address()));
        });
    }
}

fn user_id(name: &str) -> (u32, u32) {
    let user = User::from_name(name).unwrap().expect("a user of this name");
    (user.uid.as_raw(), user.gid.as_raw())
}

/// It is killed when this is dropped.
struct Conntrackd(Child);

impl Drop for Conntrackd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
