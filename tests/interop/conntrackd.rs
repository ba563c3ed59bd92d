//! Promise 13 with conntrackd: two nodes, configured as Neutron does, synchronise at each transition, so that
//! a connection survives the failover.

use std::cell::Cell;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
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
    lab::trials![connection_survives_failover, also_as_nobody, conntrackd_is_not_there,]
}

fn connection_survives_failover() {
    play(None);
}

/// conntrackd's control socket belongs to root.
fn also_as_nobody() {
    play(Some("nobody"));
}

/// What conntrackd logs for each command, in the order of the commands.
const ACTIVE: [&str; 4] = [
    "committing all external caches",
    "flushing caches",
    "resync with master conntrack table",
    "sending bulk update",
];
const BACKUP: [&str; 2] = ["flushing conntrack table in 60 secs", "resync requested"];

/// `user` is whom the daemons become, and whose their directories are.
fn play(user: Option<&str>) {
    let (left, right) = (Node::new(1, user), Node::new(2, user));
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
        let uid = user.map_or(0, |user| user_id(user).0).to_string();
        assert_eq!(keepwatch.proc_status("Uid").split_whitespace().next(), Some(uid.as_str()));
        assert_eq!(keepwatch.counter("command_failures"), 0);
    }
}

/// The commands fail, are run all the same, and the agent is told.
fn conntrackd_is_not_there() {
    let (node, other) = (Node::new(1, None), Node::new(2, None));
    connect(&node, &other);
    node.configure();
    let keepwatch = node.start_keepwatch();
    keepwatch.wait_counter("command_failures", 2);
    node.set_vip(true);
    keepwatch.wait_counter("command_failures", 6);
    node.agent.wait_acknowledged("primary");
    keepwatch.wait_log("t connect: is conntrackd running?", 6);
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
    fn new(number: u8, user: Option<&str>) -> Self {
        let netns = Netns::new();
        let rtnl = netns.run(Rtnl::new);
        let mut setup = setup().with("--active-word=primary").with("--enable_conntrackd");
        let agent = Agent::start(&setup.state_path);
        if let Some(user) = user {
            setup = setup.with(format!("--user={user}"));
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
