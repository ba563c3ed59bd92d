//! Records the seeds of the corpora: what the kernel and agents really send, one file for each.
//!
//! `record DIRECTORY` makes a namespace of its own, has things happen in it, and writes what it sees to
//! `DIRECTORY/<target>/<what happened>`.

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use keepwatch::errno::Errno;
use keepwatch::wire::helper::{
    CommandResult, HookCall, HookState, Message, Request, SyncCommand, encode_message,
    encode_request,
};
use keepwatch::wire::{http, rtnl};
use lab::PATIENCE;
use lab::agent::{Agent, Manners};
use lab::capture::{Capture, Frame};
use lab::files::{Directory, wait_readable};
use lab::namespace::Netns;
use lab::rtnl::{Address, Rtnl};
use netlink_packet_route::address::AddressFlags;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::libc;

const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ROUTER: &str = "3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11";

fn main() {
    let directory = std::env::args_os().nth(1).expect("a directory to write to");
    let directory = std::path::absolute(directory).expect("a directory to write to");
    lab::namespace::enter().expect("a namespace of its own");
    record_netlink(&Corpus::new(&directory, "rtnl"));
    record_frames(&Corpus::new(&directory, "frames"));
    record_replies(&Corpus::new(&directory, "reply"));
    record_channel(&Corpus::new(&directory, "conntrackd"));
    write_options(&directory);
}

struct Corpus(PathBuf);

impl Corpus {
    fn new(directory: &Path, target: &str) -> Self {
        let directory = directory.join(target);
        fs::create_dir_all(&directory).expect("a directory for the corpus");
        Self(directory)
    }

    fn add(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).expect("to write a seed");
    }
}

/// A socket that hears what the daemon hears, and the corpus that it goes into.
struct Recorder<'a> {
    socket: Socket,
    corpus: &'a Corpus,
}

impl<'a> Recorder<'a> {
    fn new(corpus: &'a Corpus) -> Self {
        let mut socket = Socket::new(NETLINK_ROUTE).expect("a netlink socket");
        socket.bind_auto().expect("a netlink port");
        socket.set_netlink_get_strict_chk(true).expect("strict checking");
        for group in [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV6_NETCONF,
        ] {
            socket.add_membership(group).expect("to join a group");
        }
        socket.set_non_blocking(true).expect("a socket that does not block");
        Self { socket, corpus }
    }

    /// Records what has come by now, each datagram of another kind, under this name.
    fn record(&self, name: &str) {
        assert!(wait_readable(&self.socket, PATIENCE), "waited in vain for {name}");
        let mut kinds = Vec::new();
        while let Ok((datagram, _)) = self.socket.recv_from_full() {
            let kind = u16::from_ne_bytes([datagram[4], datagram[5]]);
            if !kinds.contains(&kind) {
                kinds.push(kind);
                self.corpus.add(&format!("{name}-{kind}"), &datagram);
            }
        }
    }

    fn ask(&self, request: &[u8], name: &str) {
        self.socket.send_to(request, &SocketAddr::new(0, 0), 0).expect("to send a request");
        self.record(name);
    }
}

fn record_netlink(corpus: &Corpus) {
    let (rtnl, recorder) = (Rtnl::new(), Recorder::new(corpus));
    rtnl.add_veth("lan0", "far0");
    recorder.record("veth-added");
    rtnl.up("lan0");
    rtnl.up("far0");
    recorder.record("carrier");
    rtnl.add_address("lan0", "192.0.2.1/24");
    recorder.record("ipv4-added");
    let peer = Some([198, 51, 100, 1].into());
    rtnl.add("lan0", Address { peer, ..Address::new("192.0.2.2/32") });
    recorder.record("ipv4-with-peer-added");
    rtnl.add("lan0", Address { lifetime: Some(1000), ..Address::new("192.0.2.1/24") });
    recorder.record("ipv4-refreshed");
    rtnl.delete_address("lan0", "192.0.2.1/24");
    recorder.record("ipv4-removed");
    rtnl.add("lan0", Address { flags: AddressFlags::empty(), ..Address::new("fd00::1/64") });
    recorder.record("ipv6-tentative");
    recorder.record("ipv6-settled");
    rtnl.add_address("lan0", "fd00::2/128");
    recorder.record("ipv6-without-detection-added");
    rtnl.delete_address("lan0", "fd00::2/128");
    recorder.record("ipv6-removed");
    fs::write("/proc/sys/net/ipv6/conf/lan0/forwarding", "1").expect("to forward IPv6");
    recorder.record("forwarding");
    rtnl.set_mac("lan0", [2, 0, 0, 0, 0, 9]);
    recorder.record("mac");
    rtnl.add_bridge("br0");
    rtnl.set_bridge("far0", Some("br0"));
    recorder.record("bridge-joined");
    rtnl.set_bridge("far0", None);
    recorder.record("bridge-left");
    record_dumps(&rtnl, &recorder);
    rtnl.down("lan0");
    rtnl.rename("lan0", "ha-0123456789ab");
    recorder.record("renamed");
    rtnl.delete("far0");
    recorder.record("deleted");
}

fn record_dumps(rtnl: &Rtnl, recorder: &Recorder) {
    recorder.ask(&rtnl::request_links(1), "dump-of-links");
    recorder.ask(&rtnl::request_addresses(2, rtnl.ifindex("lan0")), "dump-of-addresses");
    recorder.ask(&rtnl::request_addresses(3, 9999), "dump-of-no-interface");
    // Strict checking does not take a prefix length.
    let mut refused = rtnl::request_addresses(4, 0);
    refused[17] = 24;
    recorder.ask(&refused, "dump-refused");
}

fn record_frames(corpus: &Corpus) {
    let (rtnl, far) = (Rtnl::new(), Netns::new());
    rtnl.add_veth("lan1", "far1");
    rtnl.set_mac("lan1", NEAR);
    for setting in ["ipv4/conf/lan1/arp_notify", "ipv6/conf/lan1/ndisc_notify"] {
        fs::write(format!("/proc/sys/net/{setting}"), "1").expect("to have changes announced");
    }
    rtnl.move_to("far1", &far);
    let capture = far.run(|| {
        let rtnl = Rtnl::new();
        rtnl.up("far1");
        rtnl.add_address("far1", "192.0.2.2/24");
        rtnl.add_address("far1", "fd00::2/64");
        Capture::new("far1")
    });
    rtnl.add_address("lan1", "192.0.2.1/24");
    rtnl.up("lan1");
    rtnl.add("lan1", Address { flags: AddressFlags::empty(), ..Address::new("fd00::1/64") });
    rtnl.add_address("lan1", "fd00::3/64");
    capture.wait("an ARP announcement", |frames| frames.iter().any(Frame::is_arp));
    capture.wait("an advertisement", |frames| frames.iter().any(Frame::is_advertisement));
    // Whoever wants to send has to ask, and is answered.
    for (from, to) in [("192.0.2.1:9", "192.0.2.2:9"), ("[fd00::3]:9", "[fd00::2]:9")] {
        UdpSocket::bind(from).and_then(|socket| socket.send_to(b"x", to)).expect("to send");
    }
    let is_reply = |frame: &Frame| frame.is_arp() && frame.bytes[21] == 2;
    capture.wait("an ARP reply", |frames| frames.iter().any(is_reply));
    let is_solicited = |frame: &Frame| frame.is_advertisement() && frame.bytes[58] & 0x40 != 0;
    let frames = capture.wait("an answer", |frames| frames.iter().any(is_solicited));
    for frame in frames {
        let kind = match frame.bytes[12..14] {
            [0x08, 0x06] => format!("arp-{}", frame.bytes[21]),
            [0x86, 0xdd] if frame.bytes[20] == 58 => format!("icmpv6-{}", frame.bytes[54]),
            _ => "other".into(),
        };
        let from = if frame.source() == NEAR { "near" } else { "far" };
        corpus.add(&format!("{kind}-from-{from}"), &frame.bytes);
    }
}

/// Asks agents with all kinds of manners, and records the pieces in which their replies arrive.
fn record_replies(corpus: &Corpus) {
    let manners = [
        ("newest", Manners::newest()),
        ("eventlet", Manners::eventlet()),
        ("dribbled", Manners::Dribble(b"HTTP/1.1 200 OK\r\n\r\n")),
        ("error", Manners::Reply(vec![b"HTTP/1.1 500 Internal Server Error\r\n\r\n"])),
        ("bad-request", Manners::Reply(vec![b"HTTP/1.0 400 Bad request\r\n\r\n<html>"])),
        ("without-reason", Manners::Reply(vec![b"HTTP/1.1 200", b"\n"])),
        ("continue", Manners::Reply(vec![b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"])),
        ("other-protocol", Manners::Reply(vec![b"SSH-2.0-OpenSSH_9.2p1\r\n"])),
        ("closed-early", Manners::CloseEarly),
        ("babble", Manners::Babble),
    ];
    let directory = Directory::new();
    let agent = Agent::start(directory.path());
    let router = ROUTER.parse().expect("an identity");
    let request = http::encode(&router, "master").expect("a request");
    for (name, manner) in manners {
        agent.behave(manner);
        let path = directory.path().join("keepalived-state-change");
        let mut stream = UnixStream::connect(path).expect("the agent listens");
        stream.write_all(&request).expect("to send the request");
        let (mut pieces, mut buffer) = (Vec::new(), [0; 255]);
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            pieces.push(u8::try_from(length).expect("a short piece"));
            pieces.extend_from_slice(&buffer[..length]);
            if pieces.len() > 500 {
                break;
            }
        }
        corpus.add(name, &pieces);
    }
}

/// What the daemon and its helper process say to each other.
fn record_channel(corpus: &Corpus) {
    for command in SyncCommand::ALL {
        let flag = command.flag().to_string_lossy();
        corpus.add(&format!("request{flag}"), &encode_request(Request::Sync(command), 1));
    }
    for state in HookState::ALL {
        let (word, call) =
            (state.word().to_string_lossy(), HookCall { state, previous: Some(state) });
        corpus.add(&format!("request-{word}"), &encode_request(Request::Hook(call), 1));
    }
    let ends = [
        ("exited", CommandResult::Exited(1)),
        ("signalled", CommandResult::Signalled(9)),
        ("timed-out", CommandResult::TimedOut),
        ("not-started", CommandResult::NotStarted(Errno(2))),
        ("not-configured", CommandResult::NotConfigured(Errno(40))),
        ("not-confined", CommandResult::NotConfined(Errno(1))),
        ("aborted", CommandResult::Aborted),
    ];
    let ends = ends.map(|(name, end)| (name, Message::Ended { number: 1, end, dropped: 0 }));
    let others = [
        ("printed", Message::Printed(b"can't connect: is conntrackd running?")),
        ("restarted", Message::Restarted(Some(1))),
    ];
    for (name, message) in ends.into_iter().chain(others) {
        corpus.add(name, &encode_message(&message));
    }
    corpus.add("configuration", b"UNIX {\n    Path /d/conntrackd.ctl\n}\n");
}

/// The command lines of the three generations of the original, and what is in them.
fn write_options(directory: &Path) {
    let watch = "--monitor_interface=ha-0123456789 --monitor_cidr=169.254.0.5/24 --conf_dir=/";
    let files = "--pid_file=/run/pid --state_path=/run/agent --user=0 --group=0";
    let lines = [
        ("2015", format!("--router_id={ROUTER} --namespace=qrouter-1 {watch} {files}")),
        ("2020", format!("--router_id={ROUTER} {watch} {files} --enable_conntrackd --nodebug")),
        ("2026", format!("--router_id={ROUTER} {watch} {files} --foreground").replace('=', " ")),
        (
            "tempo",
            format!("--router-id=r {watch} {files} -d --garp_interval 0.5 --garp-master-repeat=9"),
        ),
        (
            "ignored",
            format!("--config-file=/a --AGENT-root_helper=sudo --log-dir /b {watch} {files}"),
        ),
    ];
    let corpus = Corpus::new(directory, "argv");
    for (name, line) in lines {
        corpus.add(name, line.replace(' ', "\0").as_bytes());
    }
    corpus.add("help", b"--help");
    let corpus = Corpus::new(directory, "cidr");
    for (n, text) in
        ["169.254.0.5/24", "10.0.0.1", "fd00::5/64", "::ffff:192.0.2.1/128"].iter().enumerate()
    {
        corpus.add(&format!("vip-{n}"), text.as_bytes());
    }
    Corpus::new(directory, "request").add("uuid", format!("\0{ROUTER}").as_bytes());
}
