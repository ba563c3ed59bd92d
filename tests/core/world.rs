//! A world for the core to live in: a kernel with a queue that overflows, a disk that fails, an agent
//! that comes and goes. What happens is told by bytes, so that a property test and a fuzzer can both
//! drive it.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use keepwatch::core::{
    Action, Announcement, DumpEnd, Duration, Failure, Input, Instant, Kind, Monitor, Outcome,
    Request, Sent, State, Tables, Tempo, Watch,
};
use keepwatch::errno::Errno;
use keepwatch::wire::Claim;
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

/// Events that fit into the kernel's queue.
const QUEUE: usize = 6;

/// The link beside the watched one.
const LAN: u32 = 99;
const MAC: Mac = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// The core and everything around it.
pub struct World<'a> {
    monitor: Monitor<'a>,
    now: Instant,
    /// The truth: the index of the watched interface, and whether it has the VIP.
    ifindex: Option<u32>,
    vip: bool,
    last_index: u32,
    /// Whether the LAN has carrier, and for each address there how many frames have announced it since it
    /// appeared or the carrier came back.
    lan_up: bool,
    lan: HashMap<Ipv4Addr, u32>,
    /// What the core has been told of them.
    told: HashMap<Ipv4Addr, bool>,
    wire_full: bool,
    listening: Option<u32>,
    queue: VecDeque<Input>,
    /// The queue has overflowed, and nothing more gets in until it is empty.
    congested: bool,
    overrun: bool,
    dump: Option<DumpEnd>,
    next_dump_end: DumpEnd,
    disk_works: bool,
    file: Option<State>,
    agent_listens: bool,
    connection: Connection,
    /// What the agent last answered with 200.
    acknowledged: Option<State>,
    ready: bool,
    exited: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Connection {
    None,
    InFlight(State),
    Lingering,
}

impl<'a> World<'a> {
    pub fn new(seed: u32, tables: &'a mut Tables) -> Self {
        let watch = Watch {
            interface: name("ha"),
            vip: vip(),
            seed,
            announce: Some((Tempo::default(), tables)),
            detect_split_brain: true,
            sync_conntrack: false,
            check_namespace: None,
        };
        Self {
            monitor: Monitor::new(watch),
            now: Instant::from_secs(1),
            ifindex: None,
            vip: false,
            last_index: 1,
            lan_up: true,
            lan: HashMap::new(),
            told: HashMap::new(),
            wire_full: false,
            listening: None,
            queue: VecDeque::new(),
            congested: false,
            overrun: false,
            dump: None,
            next_dump_end: DumpEnd::Complete,
            disk_works: true,
            file: None,
            agent_listens: true,
            connection: Connection::None,
            acknowledged: None,
            ready: false,
            exited: false,
        }
    }

    /// Lets things happen as the bytes say, then lets the world come to rest, and checks that the
    /// truth has arrived everywhere.
    pub fn live(script: &[u8]) {
        let mut tables = Box::new(Tables::new());
        let mut world = World::new(script.len() as u32, &mut tables);
        for step in script.chunks(2) {
            world.step(step[0], step.get(1).copied().unwrap_or_default());
        }
        world.come_to_rest();
        let truth = world.truth();
        assert_eq!(world.file, Some(truth), "the state file holds the truth");
        assert_eq!(world.acknowledged, Some(truth), "the agent has said 200 to the truth");
        assert!(world.ready);
        if world.lan_up {
            let silent = world.lan.iter().find(|(_, frames)| **frames < 6);
            assert_eq!(silent, None, "every address has had its three rounds");
        }
        assert_eq!(world.listening, world.ifindex.filter(|_| truth == State::Active));
        world.leave();
    }

    fn truth(&self) -> State {
        if self.ifindex.is_some() && self.vip { State::Active } else { State::Backup }
    }

    fn step(&mut self, what: u8, how: u8) {
        match what % 16 {
            0 | 1 => self.set_vip(true),
            2 | 3 => self.set_vip(false),
            4 => self.create_interface(),
            5 => self.lose_interface(how.is_multiple_of(2)),
            6 => self.change_lan(how),
            7 => self.set_carrier(how),
            8 | 9 => self.read(usize::from(how % 8)),
            10 => self.pass(Duration::from_millis(u64::from(how).pow(2))),
            11 => self.agent_acts(how),
            12 => self.agent_listens = how.is_multiple_of(2),
            13 => self.disk_works = how.is_multiple_of(2),
            14 => {
                let request = if how.is_multiple_of(2) { Request::Reload } else { Request::Status };
                self.feed(&Input::Request(request));
            }
            _ => self.trouble(how),
        }
    }

    fn trouble(&mut self, how: u8) {
        match how % 8 {
            0 => self.next_dump_end = DumpEnd::Interrupted,
            1 => self.next_dump_end = DumpEnd::Failed(Errno(16)),
            2 => self.next_dump_end = DumpEnd::TimedOut,
            3 => self.queue.push_back(Input::Unreadable),
            4 => self.feed(&Input::ForeignSender(7)),
            5 => self.wire_full = !self.wire_full,
            6 => self.feed(&Input::Writable),
            _ => self.claim(),
        }
    }

    /// Adds an address to the LAN or removes it.
    fn change_lan(&mut self, how: u8) {
        let ip = Ipv4Addr::new(10, 0, 0, how % 8);
        if self.lan.remove(&ip).is_some() {
            self.emit(Input::Event(Body::DelAddress(lan_address(ip))));
        } else {
            self.lan.insert(ip, 0);
            self.emit(Input::Event(Body::NewAddress(lan_address(ip))));
        }
    }

    fn set_carrier(&mut self, how: u8) {
        let up = how.is_multiple_of(2);
        if up == self.lan_up {
            return;
        }
        self.lan_up = up;
        self.lan.values_mut().for_each(|frames| *frames = 0);
        self.emit(Input::Event(Body::NewLink(self.lan_link())));
    }

    fn lan_link(&self) -> Link {
        let flags = if self.lan_up { UP } else { LinkFlags::Up };
        Link { flags, mac: Some(MAC), ..link(LAN, "lan") }
    }

    /// A claim of the VIP by somebody else is no business of the reports.
    fn claim(&mut self) {
        let claim = Claim { mac: OTHER_MAC, ip: vip().address() };
        self.feed(&Input::Claimed(self.listening.unwrap_or(LAN), claim));
    }

    fn set_vip(&mut self, present: bool) {
        let Some(ifindex) = self.ifindex else { return };
        if present != self.vip {
            self.vip = present;
            let body = if present { Body::NewAddress } else { Body::DelAddress };
            self.emit(Input::Event(body(address(ifindex))));
        } else if present {
            // A refresh.
            self.emit(Input::Event(Body::NewAddress(address(ifindex))));
        }
    }

    fn create_interface(&mut self) {
        if self.ifindex.is_none() {
            self.last_index += 1;
            self.ifindex = Some(self.last_index);
            self.emit(Input::Event(Body::NewLink(link(self.last_index, "ha"))));
        }
    }

    fn lose_interface(&mut self, renamed: bool) {
        let Some(ifindex) = self.ifindex.take() else { return };
        if renamed {
            self.emit(Input::Event(Body::NewLink(link(ifindex, "away"))));
        } else {
            if self.vip {
                self.emit(Input::Event(Body::DelAddress(address(ifindex))));
            }
            self.emit(Input::Event(Body::DelLink(link(ifindex, "ha"))));
        }
        self.vip = false;
    }

    /// As the kernel does: what does not fit is dropped, and everything after it until the queue has
    /// been read empty.
    fn emit(&mut self, event: Input) {
        if self.congested {
            return;
        }
        if self.queue.len() < QUEUE {
            self.queue.push_back(event);
        } else {
            self.congested = true;
            self.overrun = true;
        }
    }

    fn read(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            if std::mem::take(&mut self.overrun) {
                self.feed(&Input::Overrun);
            } else if let Some(input) = self.queue.pop_front() {
                self.feed(&input);
            } else if let Some(end) = self.dump.take() {
                // The rest of a dump is queued when there is room for it.
                self.congested = false;
                if end != DumpEnd::TimedOut {
                    self.queue.push_back(Input::DumpEnded(end));
                }
            } else {
                self.congested = false;
                self.feed(&Input::QueueEmpty);
                return;
            }
        }
    }

    /// Lets time pass, with a look at the queue at every deadline on the way.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut looks = 0;
        while let Some(deadline) = self.monitor.deadline()
            && deadline <= end
            && !self.exited
        {
            if deadline > self.now {
                self.now = deadline;
                looks = 0;
            }
            self.read(usize::MAX);
            looks += 1;
            assert!(looks < 10, "a deadline that does not move");
        }
        self.now = end.max(self.now);
    }

    fn unread(&self) -> bool {
        self.overrun || !self.queue.is_empty() || self.dump.is_some()
    }

    fn agent_acts(&mut self, how: u8) {
        let Connection::InFlight(state) = self.connection else {
            if self.connection == Connection::Lingering {
                self.connection = Connection::None;
                self.feed(&Input::Agent(Outcome::Closed));
            }
            return;
        };
        let failure = match how % 8 {
            0..4 => {
                self.acknowledged = Some(state);
                self.connection = Connection::Lingering;
                self.feed(&Input::Agent(Outcome::Delivered));
                return;
            }
            4 => Failure::ClosedEarly,
            5 => Failure::Malformed,
            6 => Failure::Status(500),
            _ => Failure::Socket(Errno(5)),
        };
        self.connection = Connection::None;
        self.feed(&Input::Agent(Outcome::Failed(failure)));
    }

    fn feed(&mut self, input: &Input) {
        if self.exited {
            return;
        }
        self.note_told(input);
        for action in self.monitor.on(input, self.now) {
            if let Some(outcome) = self.carry_out(&action) {
                self.feed(&outcome);
            }
        }
    }

    fn note_told(&mut self, input: &Input) {
        let (address, there) = match input {
            Input::Event(Body::NewAddress(address)) | Input::Listed(Body::NewAddress(address)) => {
                (address, true)
            }
            Input::Event(Body::DelAddress(address)) => (address, false),
            _ => return,
        };
        if let (LAN, IpAddr::V4(ip)) = (address.ifindex, address.cidr.address()) {
            self.told.insert(ip, there);
        }
    }

    fn announce(&mut self, announcement: &Announcement) -> Sent {
        if self.wire_full {
            return Sent::QueueFull;
        }
        let (Kind::ArpRequest(ip) | Kind::ArpReply(ip)) = announcement.kind else {
            panic!("there are no IPv6 addresses");
        };
        assert_eq!((announcement.ifindex, announcement.mac), (LAN, MAC));
        assert_eq!(self.told.get(&ip), Some(&true), "no frame for an address that is gone");
        if let Some(frames) = self.lan.get_mut(&ip) {
            *frames += 1;
        }
        Sent::Yes
    }

    fn carry_out(&mut self, action: &Action) -> Option<Input> {
        match *action {
            Action::DumpLinks => self.begin_dump(|world| {
                let ours = world.ifindex.map(|ifindex| Body::NewLink(link(ifindex, "ha")));
                ours.into_iter().chain([Body::NewLink(world.lan_link())]).collect()
            }),
            Action::DumpAddresses(ifindex) => self.begin_dump(|world| {
                let there = world.vip && world.ifindex == Some(ifindex);
                // As without strict checking, those of all interfaces come.
                let lan = world.lan.keys().map(|ip| Body::NewAddress(lan_address(*ip)));
                lan.chain(there.then(|| Body::NewAddress(address(ifindex)))).collect()
            }),
            Action::Announce(ref announcement) => Some(Input::Sent(self.announce(announcement))),
            Action::Listen(ifindex) => {
                self.listening = ifindex;
                None
            }
            Action::WriteState(state) if self.disk_works => {
                self.file = Some(state);
                Some(Input::StateFile(Ok(state)))
            }
            Action::WriteState(_) => Some(Input::StateFile(Err(Errno(28)))),
            Action::Notify(state) => {
                assert!(
                    !matches!(self.connection, Connection::InFlight(_)),
                    "two attempts at once"
                );
                if self.agent_listens {
                    self.connection = Connection::InFlight(state);
                    return None;
                }
                self.connection = Connection::None;
                Some(Input::Agent(Outcome::Failed(Failure::Refused)))
            }
            Action::HangUp => {
                assert!(self.connection != Connection::None, "there is nothing to hang up");
                self.connection = Connection::None;
                None
            }
            Action::Ready => {
                assert!(!self.ready && self.file.is_some(), "ready once, with the state written");
                self.ready = true;
                None
            }
            Action::Heed(_) | Action::Run(_) | Action::CheckNamespace => panic!("not asked for"),
            Action::Exit(_) => {
                self.exited = true;
                None
            }
            Action::Log(_) | Action::LogStatus(_) | Action::ReopenLog => None,
        }
    }

    fn begin_dump(&mut self, content: impl FnOnce(&Self) -> Vec<Body>) -> Option<Input> {
        assert!(self.dump.is_none(), "two dumps at once");
        let end = std::mem::replace(&mut self.next_dump_end, DumpEnd::Complete);
        if let DumpEnd::Failed(_) = end {
            return Some(Input::DumpEnded(end));
        }
        self.queue.extend(content(self).into_iter().map(Input::Listed));
        self.dump = Some(end);
        None
    }

    /// Everything works from now on; waits until there is nothing left to do.
    fn come_to_rest(&mut self) {
        (self.disk_works, self.agent_listens, self.wire_full) = (true, true, false);
        for _ in 0..10_000 {
            self.next_dump_end = DumpEnd::Complete;
            self.read(usize::MAX);
            self.agent_acts(0);
            if self.unread() || self.connection != Connection::None {
                continue;
            }
            let Some(deadline) = self.monitor.deadline() else { return };
            self.now = self.now.max(deadline);
        }
        panic!(
            "the core does not come to rest: {:?} {:?} {:?}",
            self.monitor, self.now, self.queue
        );
    }

    fn leave(&mut self) {
        self.feed(&Input::Request(Request::Leave));
        assert!(self.exited, "with nothing in flight it leaves at once");
    }
}

fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name.as_bytes()).expect("a legal name")
}

fn vip() -> Cidr {
    "169.254.0.5/24".parse().expect("an address")
}

fn address(ifindex: u32) -> Address {
    let flags = AddressFlags::Permanent;
    Address { ifindex, cidr: vip(), peer: vip().address(), flags, refreshed: false }
}

fn lan_address(ip: Ipv4Addr) -> Address {
    let cidr = Cidr::new(ip.into(), 24).expect("an address");
    Address { cidr, peer: ip.into(), ..address(LAN) }
}

const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);

fn link(ifindex: u32, name_: &str) -> Link {
    Link {
        ifindex,
        name: Some(name(name_)),
        flags: UP,
        mac: Some(MAC),
        carrier_changes: 0,
        ipv6_forwarding: None,
    }
}
