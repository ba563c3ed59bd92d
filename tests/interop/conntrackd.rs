//! Promise 13 with conntrackd: two nodes, configured as Neutron does, synchronise at each transition, so that
//! a connection survives the failover.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::agent::Agent;
use lab::daemon::{Running, Setup};
use lab::files::{Watch, content};
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use lab::users::NOBODY;
use libtest_mimic::Trial;

use crate::output;
use crate::world::{VIP, setup, up_quietly};

pub fn trials() -> Vec<Trial> {
    lab::trials![connection_survives_failover]
}

/// What conntrackd logs for each command, in the order of the commands.
const ACTIVE: [&str; 4] = [
    "committing all external caches",
    "flushing caches",
    "resync with master conntrack table",
    "sending bulk update",
];
const BACKUP: [&str; 2] = ["flushing conntrack table in 60 secs", "resync requested"];

/// One daemon stays root, the other becomes nobody: conntrackd's control socket belongs to root.
fn connection_survives_failover() {
    let (left, right) = (Node::new(1, "root"), Node::new(2, "nobody"));
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
    for (keepwatch, uid) in keepwatch.iter().zip(["0\t", "65534\t"]) {
        assert!(keepwatch.proc_status("Uid").starts_with(uid));
        assert_eq!(keepwatch.counter("command_failures"), 0);
    }
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
    fn new(number: u8, user: &str) -> Self {
        let netns = Netns::new();
        let rtnl = netns.run(Rtnl::new);
        let setup = setup().with("--active-word=primary").with("--enable_conntrackd");
        let setup = setup.with(format!("--user={user}"));
        let agent = Agent::start(&setup.state_path);
        if user == "nobody" {
            let socket = setup.state_path.join("keepalived-state-change");
            for path in [&setup.conf_dir, &setup.state_path, &socket] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            fs::set_permissions(setup.directory(), Permissions::from_mode(0o755)).unwrap();
        }
        Self { number, netns, rtnl, setup, agent, checked: Cell::new(0) }
    }

    fn address(&self) -> String {
        format!("169.254.192.{}", self.number)
    }

    fn configuration(&self) -> PathBuf {
        self.setup.conf_dir.join("conntrackd.conf")
    }

    /// As Neutron writes it, but with a log file.
    fn text(&self) -> String {
        let directory = self.setup.conf_dir.to_str().unwrap();
        let text = include_str!("conntrackd.conf").replace("DIRECTORY", directory);
        text.replace("ADDRESS", &self.address())
    }

    /// Starts conntrackd and waits until it serves.
    fn start_conntrackd(&self) -> Conntrackd {
        fs::write(self.configuration(), self.text()).unwrap();
        let files = Watch::new(&self.setup.conf_dir);
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(self.configuration());
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
        let router = &self.setup.router;
        let line = format!("Synced connection tracking state on {state} for router {router}");
        keepwatch.wait(&line, || {
            let log = self.setup.log();
            log.lines().rfind(|line| line.contains("Synced")).is_some_and(|l| l.ends_with(&line))
        });
        self.agent.wait_acknowledged(state);
        let log = self.conntrackd_log();
        let new = &log[self.checked.replace(log.len())..];
        let mut lines = new.lines();
        let in_order = commands.iter().all(|command| lines.any(|line| line.ends_with(command)));
        assert!(in_order, "{commands:?} in\n{new}");
    }

    /// Waits until conntrackd knows a connection of the other node.
    fn wait_external_connection(&self) {
        let configuration = self.configuration();
        let arguments = ["-C", configuration.to_str().unwrap(), "-e"];
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

/// It is killed when this is dropped.
struct Conntrackd(Child);

impl Drop for Conntrackd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
