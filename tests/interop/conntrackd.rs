//! Promise 13 with conntrackd: two nodes with Neutron's configuration synchronise at each transition, so that a
//! connection survives the failover.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use lab::daemon::Running;
use lab::files::{Watch, content, look};
use lab::received::Late;
use lab::users::NOBODY;

use crate::node::{Network, Node};
use crate::output;
use crate::world::{Killed, VIP};

/// conntrackd's log line for each command, in the order of the commands.
const ACTIVE: [&str; 4] = [
    "committing all external caches",
    "flushing caches",
    "resync with master conntrack table",
    "sending bulk update",
];
const BACKUP: [&str; 2] = ["flushing conntrack table in 60 secs", "resync requested"];

/// One daemon runs as root and one as user nobody, while conntrackd's control socket belongs to root.
#[apply(trial)]
fn connection_survives_failover() {
    let network = Network::new();
    let left = Tracked::new("left", 1, "root", &network);
    let right = Tracked::new("right", 2, "nobody", &network);
    let _conntrackd = left.start_conntrackd();
    let conntrackd = right.start_conntrackd();
    let keepwatch = [left.node.watch(), right.node.watch()];
    for (node, keepwatch) in [&left, &right].into_iter().zip(&keepwatch) {
        node.wait_synced(keepwatch, "backup", &BACKUP);
    }

    left.set_vip(true);
    left.wait_synced(&keepwatch[0], "primary", &ACTIVE);
    left.node.netns.run(|| {
        let flow = "-I -p tcp -s 10.0.0.2 -d 198.51.100.7 --sport 1234 --dport 80 \
            --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 600";
        output("conntrack", &flow.split_whitespace().collect::<Vec<_>>());
    });
    right.wait_external_connection();
    // A new one knows no connection, until it asks for all.
    drop(conntrackd);
    let _conntrackd = right.start_conntrackd();
    right.wait_external_connection();

    left.set_vip(false);
    left.wait_synced(&keepwatch[0], "backup", &BACKUP);
    right.set_vip(true);
    right.wait_synced(&keepwatch[1], "primary", &ACTIVE);
    let flows = right.node.netns.run(|| output("conntrack", &["-L"]));
    assert!(flows.contains("src=10.0.0.2 dst=198.51.100.7 sport=1234 dport=80"), "{flows:?}");
    for (keepwatch, uid) in keepwatch.iter().zip(["0\t", "65534\t"]) {
        assert!(keepwatch.proc_status("Uid").starts_with(uid));
        assert_eq!(keepwatch.counter("command_failures"), 0);
    }
}

/// A node with conntrackd instead of keepalived, whose files belong to the daemon's user.
struct Tracked {
    node: Node,
    address: String,
    /// The length of conntrackd's log that has been checked.
    checked: Cell<usize>,
}

impl Tracked {
    fn new(name: &'static str, number: u8, user: &str, network: &Rc<Network>) -> Self {
        let mut node = Node::new(name, number, network);
        let setup = &mut node.setup;
        setup.extra.extend(["--enable_conntrackd".into(), format!("--user={user}").into()]);
        if user == "nobody" {
            let socket = setup.state_path.join("keepalived-state-change");
            for path in [setup.directory(), &setup.conf_dir, &setup.state_path, &socket] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Self { node, address: format!("169.254.192.{number}"), checked: Cell::new(0) }
    }

    fn configuration(&self) -> PathBuf {
        self.node.setup.conf_dir.join("conntrackd.conf")
    }

    /// Starts conntrackd with Neutron's configuration and a log file, and waits until it serves.
    fn start_conntrackd(&self) -> Killed {
        let directory = &self.node.setup.conf_dir;
        let text =
            include_str!("conntrackd.conf").replace("DIRECTORY", directory.to_str().unwrap());
        fs::write(self.configuration(), text.replace("ADDRESS", &self.address)).unwrap();
        // Those of an earlier one, which was killed.
        for file in ["conntrackd.log", "conntrackd.lock"] {
            let _ = fs::remove_file(directory.join(file));
        }
        self.checked.set(0);
        let files = Watch::new(directory);
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(self.configuration());
        // conntrackd would repeat its log there.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let conntrackd = Killed(self.node.netns.run(|| command.spawn()).expect("conntrackd"));
        files.until(format!("conntrackd to serve: {}", self.conntrackd_log()), || {
            self.conntrackd_log().contains("-- starting in console mode --").then_some(())
        });
        conntrackd
    }

    fn conntrackd_log(&self) -> String {
        content(&self.node.setup.conf_dir.join("conntrackd.log"))
    }

    fn set_vip(&self, present: bool) {
        self.node.netns.run(|| self.node.rtnl.set_address("ha0", VIP, present));
    }

    /// Waits until keepwatch has synchronised for a state, and checks conntrackd's new log lines, which include
    /// requests of the other node.
    fn wait_synced(&self, keepwatch: &Running, state: &str, commands: &[&str]) {
        let router = &self.node.setup.router;
        let line = format!("Synced connection tracking state on {state} for router {router}");
        keepwatch.wait(&line, || {
            let log = self.node.setup.log();
            log.lines().rfind(|line| line.contains("Synced")).is_some_and(|l| l.ends_with(&line))
        });
        self.node.agent.wait_acknowledged(state);
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
        let what = Late(|| format!("an external connection:\n{}", self.conntrackd_log()));
        look(what, || output("conntrackd", &arguments).contains("src=10.0.0.2"));
    }
}
