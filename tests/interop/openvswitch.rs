//! Promise 12 on a switch that answers ARP for others: Open vSwitch in userspace, with the flows of Neutron's l2population
//! (`install_arp_responder` in `br_tun.py`).

use std::process::Command;

use lab::capture::Capture;
use lab::files::{Directory, look};
use lab::namespace::Netns;
use lab::rtnl::Rtnl;

use crate::output;
use crate::world::{Killed, VIP, World, setup};

/// A switch in a namespace of its own, to which `ha0-peer` of the current one is moved.
struct Switch {
    netns: Netns,
    directory: Directory,
    _processes: [Killed; 2],
}

impl Switch {
    fn new() -> Self {
        let (netns, directory) = (Netns::new(), Directory::new());
        let path = directory.path().display();
        let (database, socket) = (format!("{path}/db"), format!("unix:{path}/db.sock"));
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        output("ovsdb-tool", &["create", &database, schema]);
        let remote = format!("--remote=p{socket}");
        let processes =
            [("ovsdb-server", vec![&*database, &*remote]), ("ovs-vswitchd", vec![&*socket])].map(
                |(program, arguments)| {
                    let mut command = Command::new(program);
                    // Its control sockets are there.
                    command
                        .args(arguments)
                        .arg("-vconsole:off")
                        .env("OVS_RUNDIR", directory.path());
                    Killed(netns.run(|| command.spawn()).expect(program))
                },
            );
        let switch = Self { netns, directory, _processes: processes };
        look("the database", || switch.directory.path().join("db.sock").exists());
        switch.configure("--no-wait init");
        switch.configure("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
        switch.add_flow("table=0,priority=1,arp,dl_dst=ff:ff:ff:ff:ff:ff,actions=resubmit(,21)");
        switch.add_flow("table=0,priority=0,actions=NORMAL");
        switch.add_flow("table=21,priority=0,actions=NORMAL");
        switch
    }

    fn configure(&self, command: &str) {
        let database = format!("--db=unix:{}/db.sock", self.directory.path().display());
        let words: Vec<_> =
            ["--timeout=60", &*database].into_iter().chain(command.split(' ')).collect();
        output("ovs-vsctl", &words);
    }

    fn add_flow(&self, flow: &str) {
        let bridge = format!("unix:{}/br0.mgmt", self.directory.path().display());
        output("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", &bridge, flow]);
    }

    /// Moves a port of the current namespace here.
    fn plug_in(&self, rtnl: &Rtnl, port: &str) {
        rtnl.move_to(port, &self.netns);
        self.netns.run(|| Rtnl::new().up(port));
        self.configure(&format!("add-port br0 {port}"));
    }

    /// Answers for 169.254.0.5 or another address from now on.
    fn answer(&self, [.., third, last]: [u8; 4], mac: u8) {
        let (ip, hex) = (format!("169.254.{third}.{last}"), format!("a9fe{third:02x}{last:02x}"));
        self.add_flow(&format!(
            "table=21,priority=1,arp,arp_tpa={ip},actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],\
             set_field:02:00:00:00:00:0{mac}->eth_src,load:2->NXM_OF_ARP_OP[],\
             move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
             load:0x02000000000{mac}->NXM_NX_ARP_SHA[],load:0x{hex}->NXM_OF_ARP_SPA[],in_port"
        ));
    }
}

/// It answers for the addresses of ports, of which the VIP is none. If it does answer for the VIP, as another controller
/// may, the VIP is announced, from which that controller learns.
#[apply(trial)]
fn arp_responder() {
    const OVER: &str = "split brain over: by 02:00:00:00:00:02 ";
    let world = World::with(setup().with("--no-announce").with("--probe=1"));
    world.setup.expect(&["split brain: "]);
    let switch = Switch::new();
    world.rtnl.set_mac("ha0", [2, 0, 0, 0, 0, 1]);
    switch.plug_in(&world.rtnl, "ha0-peer");
    let (other, rtnl) = (Netns::new(), Rtnl::new());
    rtnl.add_veth("other0", "other0-peer");
    rtnl.move_to("other0", &other);
    switch.plug_in(&rtnl, "other0-peer");
    let rtnl = other.run(|| {
        let rtnl = Rtnl::new();
        rtnl.set_mac("other0", [2, 0, 0, 0, 0, 2]);
        rtnl.up("other0");
        rtnl
    });
    for last in [1, 2] {
        switch.answer([169, 254, 192, last], last);
    }
    world.rtnl.wait_running("ha0");
    let keepwatch = world.setup.start();
    world.set_vip(true);
    keepwatch.wait_state("master");
    other.run(|| rtnl.add_address("other0", VIP));
    keepwatch.wait_log("split brain: 02:00:00:00:00:02 claims 169.254.0.5 on ha0 ", 1);
    other.run(|| rtnl.delete_address("other0", VIP));
    keepwatch.wait_log(OVER, 1);
    let wire = switch.netns.run(|| Capture::new("ha0-peer"));
    switch.answer([169, 254, 0, 5], 2);
    keepwatch.wait_log("split brain: 02:00:00:00:00:02 claims 169.254.0.5 on ha0 ", 1);
    wire.wait("the announcement", |frames| {
        let is_ours = |frame: &lab::capture::Frame| {
            frame.is_arp() && frame.bytes[28..32] == [169, 254, 0, 5] && frame.source()[5] == 1
        };
        frames.iter().any(is_ours)
    });
    switch.answer([169, 254, 0, 5], 1);
    keepwatch.wait_log(OVER, 1);
}
