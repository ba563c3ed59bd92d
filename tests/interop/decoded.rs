//! Promise 11: the announcements as tcpdump captures and tshark decodes them.

use std::process::{Child, Command, Stdio};

use lab::files::Directory;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::output;
use crate::world::{World, add_interface, set_sysctl};

pub fn trials() -> Vec<Trial> {
    lab::trials![arp, advertisements]
}

const MAC: &str = "02:00:00:00:00:01";

/// tcpdump on an interface, writing to a file.
struct Tcpdump {
    directory: Directory,
    child: Child,
}

impl Tcpdump {
    fn start(interface: &str, filter: &str) -> Self {
        let directory = Directory::new();
        let file = directory.path().join("capture.pcap");
        let mut child = Command::new("tcpdump")
            .args(["--immediate-mode", "-U", "-Z", "root", "-i", interface, "-w"])
            .arg(&file)
            .arg(filter)
            .stderr(Stdio::piped())
            .spawn()
            .expect("tcpdump");
        // It says when it listens.
        let mut stderr = child.stderr.take().unwrap();
        let said = lab::files::read_line(&mut stderr);
        assert!(said.contains("listening on"), "{said}");
        child.stderr = Some(stderr);
        Self { directory, child }
    }

    /// Ends the capture and has tshark say these fields of each packet.
    fn decode(mut self, fields: &[&str]) -> Vec<Vec<String>> {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        self.child.wait().unwrap();
        let file = self.directory.path().join("capture.pcap");
        let mut arguments = vec!["-r", file.to_str().unwrap(), "-T", "fields"];
        arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
        let packets = output("tshark", &arguments);
        packets.lines().map(|line| line.split('\t').map(String::from).collect()).collect()
    }
}

/// What tcpdump captures of the announcements of an address on `lan0`, and tshark says of these fields.
fn announcements(filter: &str, address: &str, rounds: u64, fields: &[&str]) -> Vec<Vec<String>> {
    let world = World::new();
    add_interface(&world.rtnl, "lan0");
    world.rtnl.set_mac("lan0", [2, 0, 0, 0, 0, 1]);
    set_sysctl("ipv6/conf/lan0/forwarding", 1);
    world.set_vip(true);
    let keepwatch = world.setup.start();
    let tcpdump = Tcpdump::start("lan0-peer", filter);
    world.rtnl.add_address("lan0", address);
    keepwatch.wait_counter("announcements", rounds);
    let packets = tcpdump.decode(fields);
    assert_eq!(packets.len() as u64, rounds, "{packets:?}");
    packets
}

fn arp() {
    let packets = announcements(
        "arp",
        "10.0.0.1/24",
        6,
        &[
            "eth.src",
            "eth.dst",
            "arp.opcode",
            "arp.src.hw_mac",
            "arp.src.proto_ipv4",
            "arp.dst.hw_mac",
            "arp.dst.proto_ipv4",
            "arp.isgratuitous",
        ],
    );
    for pair in packets.chunks(2) {
        let broadcast = "ff:ff:ff:ff:ff:ff";
        let (nobody, ip) = ("00:00:00:00:00:00", "10.0.0.1");
        assert_eq!(pair[0][..7], [MAC, broadcast, "1", MAC, ip, nobody, ip]);
        assert_eq!(pair[1][..7], [MAC, broadcast, "2", MAC, ip, MAC, ip]);
        assert!(pair.iter().all(|packet| packet[7] == "1" || packet[7] == "True"), "{pair:?}");
    }
}

fn advertisements() {
    let packets = announcements(
        "icmp6 and ip6[40] == 136",
        "fd00::1/64",
        3,
        &[
            "eth.src",
            "eth.dst",
            "ipv6.src",
            "ipv6.dst",
            "ipv6.hlim",
            "icmpv6.type",
            "icmpv6.checksum.status",
            "icmpv6.nd.na.flag.r",
            "icmpv6.nd.na.flag.s",
            "icmpv6.nd.na.flag.o",
            "icmpv6.nd.na.target_address",
            "icmpv6.opt.linkaddr",
        ],
    );
    for packet in &packets {
        let flags: Vec<bool> = packet[7..10].iter().map(|f| f == "1" || f == "True").collect();
        assert_eq!(flags, [true, false, true], "R, S, O");
        assert_eq!(packet[..6], [MAC, "33:33:00:00:00:01", "fd00::1", "ff02::1", "255", "136"]);
        assert!(packet[6] == "1" || packet[6] == "Good", "checksum: {}", packet[6]);
        assert_eq!(packet[10..], ["fd00::1", MAC]);
    }
}
