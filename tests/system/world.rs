//! The set-up that most tests share.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;

use lab::agent::Agent;
use lab::daemon::Setup;
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use nix::mount::{MsFlags, mount};

/// A warning of a daemon whose interface a test has removed.
pub const NO_INTERFACE: &str = "watched interface ha0 not found; waiting";
/// A warning of a daemon without an agent.
pub const NO_AGENT: &str = "agent not notified: no socket (ENOENT); retrying";
/// The VIP of a [`Setup`].
pub const VIP: &str = "169.254.0.5/24";

/// A namespace with an interface `ha0` that is up, a listening agent, and a keepwatch to start.
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

    /// Adds or removes the VIP.
    pub fn set_vip(&self, present: bool) {
        self.rtnl.set_address("ha0", VIP, present);
    }

    /// Adds or removes the VIP, and waits until the agent has answered 200 for that state.
    pub fn deliver(&self, present: bool) {
        self.set_vip(present);
        self.agent.wait_acknowledged(word(present));
    }
}

/// A process that is killed on drop.
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

/// Copies the program to a path where every user may run it. `cp` does it, because a concurrent fork of this process
/// would keep the file open for writing.
pub fn copy_program(setup: &Setup, to: &Path) {
    let status = Command::new("cp").arg(&setup.program).arg(to).status().unwrap();
    assert!(status.success());
}

/// Creates an Ethernet interface, and waits until it is up with carrier.
pub fn add_interface(rtnl: &Rtnl, name: &str) {
    begin_interface(rtnl, name);
    for link in [name, &format!("{name}-peer")] {
        rtnl.wait_running(link);
    }
}

/// Creates an Ethernet interface and brings it up. The kernel's events about its carrier may still be pending.
pub fn begin_interface(rtnl: &Rtnl, name: &str) {
    let peer = format!("{name}-peer");
    rtnl.add_veth(name, &peer);
    up_quietly(rtnl, name);
    up_quietly(rtnl, &peer);
}

/// Brings a link up without an automatic IPv6 address, which would be announced.
pub fn up_quietly(rtnl: &Rtnl, name: &str) {
    set_sysctl(&format!("ipv6/conf/{name}/addr_gen_mode"), 1);
    rtnl.up(name);
}

/// Adds an address to `ha0-peer` in another namespace, so that another station has it. Returns that namespace.
pub fn add_other_station(rtnl: &Rtnl, cidr: &str) -> Netns {
    let other = Netns::new();
    rtnl.move_to("ha0-peer", &other);
    other.run(|| {
        let rtnl = Rtnl::new();
        rtnl.up("ha0-peer");
        rtnl.add_address("ha0-peer", cidr);
    });
    rtnl.wait_running("ha0");
    other
}

/// Mounts a file system whose server never answers. Returns its connection, which keeps it mounted.
pub fn mount_hanging(directory: &Path) -> File {
    let server = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    mount(Some("gone"), directory, Some("fuse"), flags, Some(&*options)).unwrap();
    server
}

/// Repeats an act in a thread of its own while another function runs.
pub fn while_repeating<T>(act: impl Fn() + Send, run: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        // Dropped also by a panic.
        let running = Arc::new(());
        let still = Arc::downgrade(&running);
        scope.spawn(move || {
            while still.strong_count() > 0 {
                act();
            }
        });
        run()
    })
}

/// Sets a number under `/proc/sys/net` in the current namespace.
pub fn set_sysctl(path: &str, value: u32) {
    std::fs::write(format!("/proc/sys/net/{path}"), value.to_string()).unwrap();
}

/// Returns the state word for a VIP that is present or absent.
pub fn word(present: bool) -> &'static str {
    if present { "master" } else { "backup" }
}
