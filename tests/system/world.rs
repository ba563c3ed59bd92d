//! What most tests begin with.

use std::path::Path;
use std::process::{Child, Command};

use lab::agent::Agent;
use lab::daemon::Setup;
use lab::namespace::Netns;
use lab::rtnl::Rtnl;

/// What a master may say besides, which may find its interface gone before it hears so.
pub const NOT_LISTENING: &str = "cannot listen for claims of the VIP: No such device (ENODEV)";
/// What a daemon says whose interface a test has removed.
pub const NO_INTERFACE: &str = "watched interface ha0 not found; waiting";
/// What a daemon says without an agent.
pub const NO_AGENT: &str = "agent not notified: no socket (ENOENT); retrying";
/// The VIP of a [`Setup`].
pub const VIP: &str = "169.254.0.5/24";

/// A namespace with an interface `ha0` that is up, an agent that listens, and a keepwatch not yet started.
pub struct World {
    pub rtnl: Rtnl,
    pub agent: Agent,
    pub setup: Setup,
}

impl World {
    pub fn new() -> Self {
        Self::with(setup())
    }

    pub fn with(setup: Setup) -> Self {
        Netns::new().enter();
        let rtnl = Rtnl::new();
        add_interface(&rtnl, "ha0");
        Self { rtnl, agent: Agent::start(&setup.state_path), setup }
    }

    /// Adds the VIP or takes it away.
    pub fn set_vip(&self, present: bool) {
        self.rtnl.set_address("ha0", VIP, present);
    }

    /// Adds the VIP or takes it away, and waits until the agent has said 200 to that.
    pub fn tell(&self, present: bool) {
        self.set_vip(present);
        self.agent.wait_acknowledged(word(present));
    }
}

/// A process that is killed when this is dropped.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn setup() -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_keepwatch"))
}

/// Copies the program to where every user may run it. Not by this process, of which a child that is just forked would keep
/// the file open for writing.
pub fn copy_program(setup: &Setup, to: &Path) {
    let status = Command::new("cp").arg(&setup.program).arg(to).status().unwrap();
    assert!(status.success());
}

/// Makes an Ethernet interface that is up and has carrier, and takes frames.
pub fn add_interface(rtnl: &Rtnl, name: &str) {
    begin_interface(rtnl, name);
    for link in [name, &format!("{name}-peer")] {
        rtnl.wait_running(link);
    }
}

/// Makes an Ethernet interface of which the kernel has yet to tell that it has carrier.
pub fn begin_interface(rtnl: &Rtnl, name: &str) {
    let peer = format!("{name}-peer");
    rtnl.add_veth(name, &peer);
    up_quietly(rtnl, name);
    up_quietly(rtnl, &peer);
}

/// Brings a link up without the address that IPv6 would give it, and have announced.
pub fn up_quietly(rtnl: &Rtnl, name: &str) {
    set_sysctl(&format!("ipv6/conf/{name}/addr_gen_mode"), 1);
    rtnl.up(name);
}

/// Puts a number into a setting under `/proc/sys/net`, of the present namespace.
pub fn set_sysctl(path: &str, value: u32) {
    std::fs::write(format!("/proc/sys/net/{path}"), value.to_string()).unwrap();
}

/// The word for a VIP that is there or not.
pub fn word(present: bool) -> &'static str {
    if present { "master" } else { "backup" }
}
