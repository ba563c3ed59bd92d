//! Promise 11: the announcements as tcpdump captures and tshark decodes them; and a queue that is full.

use std::process::{Child, Command, Stdio};

use lab::capture::Capture;
use lab::files::Directory;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::output;
use crate::world::{World, add_interface, set_sysctl, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![arp, advertisements, full_queue, full_socket]
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

/// A world with the VIP and another interface, `lan0`.
fn world(options: &[&str]) -> World {
    let world = World::with(options.iter().fold(setup(), |setup, option| setup.with(*option)));
    add_interface(&world.rtnl, "lan0");
    world.rtnl.set_mac("lan0", [2, 0, 0, 0, 0, 1]);
    world.set_vip(true);
    world
}

/// Seconds from each packet to the one before.
fn gaps(packets: &[Vec<String>]) -> Vec<f64> {
    let times: Vec<f64> = packets.iter().map(|packet| packet[0].parse().unwrap()).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn arp() {
    let world = world(&[]);
    let keepwatch = world.setup.start();
    let tcpdump = Tcpdump::start("lan0-peer", "arp");
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    keepwatch.wait_counter("announcements", 6);
    let packets = tcpdump.decode(&[
        "frame.time_relative",
        "eth.src",
        "eth.dst",
        "arp.opcode",
        "arp.src.hw_mac",
        "arp.src.proto_ipv4",
        "arp.dst.hw_mac",
        "arp.dst.proto_ipv4",
        "arp.isgratuitous",
    ]);
    assert_eq!(packets.len(), 6, "{packets:?}");
    for pair in packets.chunks(2) {
        let broadcast = "ff:ff:ff:ff:ff:ff";
        let (nobody, ip) = ("00:00:00:00:00:00", "10.0.0.1");
        assert_eq!(pair[0][1..8], [MAC, broadcast, "1", MAC, ip, nobody, ip]);
        assert_eq!(pair[1][1..8], [MAC, broadcast, "2", MAC, ip, MAC, ip]);
        assert!(pair.iter().all(|packet| packet[8] == "1" || packet[8] == "True"), "{pair:?}");
    }
    let gaps = gaps(&packets);
    assert!(gaps[1] > 1.9 && gaps[3] > 1.9, "two seconds from round to round: {gaps:?}");
}

fn advertisements() {
    let world = world(&[]);
    set_sysctl("ipv6/conf/lan0/forwarding", 1);
    let keepwatch = world.setup.start();
    let tcpdump = Tcpdump::start("lan0-peer", "icmp6 and ip6[40] == 136");
    world.rtnl.add_address("lan0", "fd00::1/64");
    keepwatch.wait_counter("announcements", 3);
    let packets = tcpdump.decode(&[
        "frame.time_relative",
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
    ]);
    assert_eq!(packets.len(), 3, "{packets:?}");
    for packet in &packets {
        let flags: Vec<bool> = packet[8..11].iter().map(|f| f == "1" || f == "True").collect();
        assert_eq!(flags, [true, false, true], "R, S, O");
        assert_eq!(packet[1..7], [MAC, "33:33:00:00:00:01", "fd00::1", "ff02::1", "255", "136"]);
        assert!(packet[7] == "1" || packet[7] == "Good", "checksum: {}", packet[7]);
        assert_eq!(packet[11..], ["fd00::1", MAC]);
    }
    let gaps = gaps(&packets);
    assert!(gaps.iter().all(|gap| *gap > 1.9), "two seconds from round to round: {gaps:?}");
}

/// A slow link: none of the frames is lost or sent twice, and the daemon does not try all the time.
fn all_arrive_once(tbf: &str, addresses: u8) {
    let world = world(&["--garp_master_repeat=1", "--garp_interval=0"]);
    let keepwatch = world.setup.start();
    let tcpdump = Tcpdump::start("lan0-peer", "arp");
    let capture = Capture::new("lan0-peer");
    output("tc", &format!("qdisc add dev lan0 root tbf {tbf}").split(' ').collect::<Vec<_>>());
    for n in 0..addresses {
        for m in 0..10 {
            world.rtnl.add_address("lan0", &format!("10.0.{m}.{n}/32"));
        }
    }
    let frames = 20 * usize::from(addresses);
    capture.wait("every frame", |heard| heard.iter().filter(|f| f.is_arp()).count() >= frames);
    keepwatch.wait_asleep();
    let packets = tcpdump.decode(&["arp.opcode", "arp.src.proto_ipv4"]);
    assert_eq!(packets.len(), frames);
    for opcode in ["1", "2"] {
        for (m, n) in (0..10).flat_map(|m| (0..addresses).map(move |n| (m, n))) {
            let frame = [opcode.to_string(), format!("10.0.{m}.{n}")];
            assert!(packets.iter().any(|packet| packet[..] == frame), "{frame:?}");
        }
    }
    assert_eq!(keepwatch.counter("announcement_failures"), 0);
    let switches: usize = keepwatch.proc_status("voluntary_ctxt_switches").parse().unwrap();
    assert!(switches < 20 * frames, "{switches} times asleep for {frames} frames");
}

/// The queue of the interface: the kernel drops what does not fit.
fn full_queue() {
    all_arrive_once("rate 24kbit burst 84 limit 84", 5);
}

/// The queue of the socket: the kernel refuses what does not fit, and says when it does.
fn full_socket() {
    all_arrive_once("rate 800kbit burst 84 limit 1000000", 100);
}
