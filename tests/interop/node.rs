//! A node of a highly available router: a namespace with keepalived, keepwatch and an agent.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use lab::agent::Agent;
use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::files::content;
use lab::namespace::Netns;
use lab::received::{Late, Received};
use lab::rtnl::Rtnl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, mkfifo};

use crate::world::{add_interface, setup, up_quietly};

/// The nodes' network: a namespace with a bridge, so that each link can be down alone.
pub struct Network {
    netns: Netns,
    rtnl: Rtnl,
}

impl Network {
    pub fn new() -> Rc<Self> {
        let netns = Netns::new();
        let rtnl = netns.run(|| {
            let rtnl = Rtnl::new();
            rtnl.add_bridge("bridge");
            up_quietly(&rtnl, "bridge");
            rtnl
        });
        Rc::new(Self { netns, rtnl })
    }

    /// Lets multicasts such as VRRP's arrive or not. Broadcasts such as ARP's always arrive.
    pub fn set_multicast(&self, on: bool) {
        self.netns.run(|| ["left", "right"].map(|port| self.rtnl.set_multicast(port, on)));
    }

    /// Connects an interface of the current namespace.
    fn connect(&self, rtnl: &Rtnl, name: &str, port: &str) {
        rtnl.add_veth(name, port);
        rtnl.move_to(port, &self.netns);
        self.netns.run(|| {
            self.rtnl.set_bridge(port, Some("bridge"));
            up_quietly(&self.rtnl, port);
        });
        up_quietly(rtnl, name);
    }
}

pub struct Node {
    name: &'static str,
    pub netns: Netns,
    pub rtnl: Rtnl,
    pub setup: Setup,
    pub agent: Agent,
    keepalived: Cell<Option<Child>>,
    /// The states of keepalived's own notifications.
    received: Arc<Received<String>>,
    /// Shared by its nodes.
    pub network: Rc<Network>,
    /// The line for an interface with the virtual MAC, if any.
    vmac: Option<&'static str>,
    /// Seconds between advertisements, and the number of further VIPs.
    pub interval: &'static str,
    pub further_vips: u8,
}

impl Node {
    /// Creates a node with the interfaces of a Neutron router. The number is the last of its HA address and MAC.
    pub fn new(name: &'static str, number: u8, network: &Rc<Network>) -> Self {
        let netns = Netns::new();
        let rtnl = netns.run(|| {
            let rtnl = Rtnl::new();
            network.connect(&rtnl, "ha0", name);
            rtnl.set_mac("ha0", [2, 0, 0, 0, 0, number]);
            rtnl.add_address("ha0", &format!("169.254.192.{number}/18"));
            for lan in ["qr0", "qg0"] {
                add_interface(&rtnl, lan);
            }
            rtnl
        });
        let setup = setup().with("--active-word=primary").with("--probe=1");
        // Each test provokes warnings of both nodes: a second master, a missing interface.
        setup.expect(&[""]);
        let agent = Agent::start(&setup.state_path);
        let node = Self {
            name,
            netns,
            rtnl,
            setup,
            agent,
            keepalived: Cell::new(None),
            received: Arc::default(),
            network: Rc::clone(network),
            vmac: None,
            interval: "1",
            further_vips: 0,
        };
        mkfifo(&node.file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Also open for writing, so that it does not end with its keepalived.
        let fifo = File::options().read(true).write(true).open(node.file("fifo")).unwrap();
        let received = Arc::clone(&node.received);
        thread::spawn(move || listen(fifo, &received));
        node
    }

    /// Makes keepalived create an interface with the virtual MAC, and watches that. Call it before `configure`.
    pub fn use_virtual_mac(&mut self) {
        self.setup.interface = "vrrp.5".into();
        self.vmac = Some("use_vmac vrrp.5");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.setup.directory().join(name)
    }

    /// Writes the configuration like Neutron, with its shortest interval by default. Only the first line is not Neutron's.
    pub fn configure(&self, priority: u8, preempt: bool, floating_ip: Option<&str>) {
        let floating_ip = floating_ip.map(|ip| format!("        {ip} dev qg0 no_track\n"));
        let further = |n| format!("        169.254.1.{n}/24 dev ha0\n");
        let further_vips = (0..self.further_vips).map(further).collect::<String>();
        let text = include_str!("keepalived.conf")
            .replace("NOPREEMPT", if preempt { "" } else { "nopreempt" })
            .replace("PRIORITY", &priority.to_string())
            .replace("VMAC", self.vmac.unwrap_or_default())
            .replace("DEVICE", if self.vmac.is_some() { "" } else { " dev ha0" })
            .replace("INTERVAL", self.interval)
            .replace("FLOATING_IP", &(floating_ip.unwrap_or_default() + &further_vips))
            .replace("FIFO", self.file("fifo").to_str().unwrap());
        std::fs::write(self.file("keepalived.conf"), text).unwrap();
    }

    /// Starts keepwatch.
    pub fn watch(&self) -> Running<'_> {
        self.netns.run(|| self.setup.start())
    }

    /// Starts keepalived with Neutron's options, but in the foreground.
    pub fn start_keepalived(&self) {
        let log = File::options().create(true).append(true).open(self.file("keepalived.log"));
        let log = log.unwrap();
        let mut command = Command::new("keepalived");
        command.args(["-n", "-P", "-l", "-D", "-f"]).arg(self.file("keepalived.conf"));
        command.arg("-p").arg(self.file("keepalived.pid"));
        command.arg("-r").arg(self.file("keepalived.pid-vrrp"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        // A process group of its own can be killed as a whole.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = self.netns.run(|| command.spawn()).expect("keepalived");
        self.keepalived.set(Some(child));
    }

    /// Terminates keepalived, and waits for its end.
    pub fn stop_keepalived(&self) {
        self.signal_keepalived(Signal::SIGTERM);
        self.keepalived.take().unwrap().wait().unwrap();
    }

    /// Kills all processes of keepalived at once, so that they cannot remove their addresses.
    pub fn kill_keepalived(&self) {
        self.signal_keepalived(Signal::SIGKILL);
        self.keepalived.take().unwrap().wait().unwrap();
        // If its pid is in use again, a stale pid file keeps the next keepalived from starting.
        for name in ["keepalived.pid", "keepalived.pid-vrrp"] {
            std::fs::remove_file(self.file(name)).unwrap();
        }
    }

    /// Sends a signal to all processes of keepalived, or only to the first if that forwards it.
    pub fn signal_keepalived(&self, signal: Signal) {
        let child = self.keepalived.take().expect("a keepalived that runs");
        let is_forwarded = matches!(signal, Signal::SIGTERM | Signal::SIGHUP);
        let send = if is_forwarded { kill } else { killpg };
        send(pid(&child), signal).unwrap();
        self.keepalived.set(Some(child));
    }

    /// Waits until this is keepalived's last state and keepwatch has delivered it to the agent.
    pub fn wait(&self, state: &str) {
        let log = || content(&self.file("keepalived.log"));
        let what = Late(|| format!("{state} of {}: {}", self.name, log()));
        let is_last = |states: &[String]| states.last().is_some_and(|last| last == state);
        drop(self.received.wait(lab::PATIENCE, what, is_last));
        self.agent.wait_acknowledged(word(state));
        assert_eq!(self.setup.state(), word(state));
    }

    /// Captures what arrives at the node's port of the network.
    pub fn wire(&self) -> Capture {
        self.network.netns.run(|| Capture::new(self.name))
    }

    /// Returns whether this is keepalived's last state, which may be `MASTER_RX_LOWER_PRI`.
    pub fn is(&self, state: &str) -> bool {
        self.received.lock().last().is_some_and(|last| last.starts_with(state))
    }

    /// Asserts that the agent got exactly keepalived's states, in the same order.
    pub fn assert_in_step(&self) {
        let expected = self.received.lock();
        let mut expected: Vec<&str> = expected.iter().map(|state| word(state)).collect();
        let arrivals = self.agent.arrivals();
        let mut arrived: Vec<_> = arrivals.iter().map(|arrival| arrival.state.as_str()).collect();
        expected.dedup();
        arrived.dedup();
        assert_eq!(arrived, expected, "{}: states at the agent, and keepalived's own", self.name);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.keepalived.take() {
            let _ = killpg(pid(&child), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Reads lines such as `INSTANCE "VR_5" MASTER 50`.
fn listen(fifo: File, received: &Received<String>) {
    for line in BufReader::new(fifo).lines().map_while(Result::ok) {
        let Some(state) = line.split(' ').nth(2) else { return };
        received.push(state.into());
    }
}

/// Returns Neutron's word for a state of keepalived, which may be `MASTER_RX_LOWER_PRI`.
fn word(state: &str) -> &'static str {
    if state.starts_with("MASTER") { "primary" } else { "backup" }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}
