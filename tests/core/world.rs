//! A world for the core to live in: a kernel with a queue that overflows, a disk that fails, an agent
//! that comes and goes. What happens is told by bytes, so that a property test and a fuzzer can both
//! drive it.

use std::collections::VecDeque;

use keepwatch::core::{
    Action, DumpEnd, Duration, Failure, Input, Instant, Monitor, Outcome, Request, State,
};
use keepwatch::errno::Errno;
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

/// Events that fit into the kernel's queue.
const QUEUE: usize = 6;

/// The core and everything around it.
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that works or does not")]
pub struct World {
    monitor: Monitor,
    now: Instant,
    /// The truth: the index of the watched interface, and whether it has the VIP.
    ifindex: Option<u32>,
    vip: bool,
    last_index: u32,
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

impl World {
    pub fn new(seed: u32) -> Self {
        Self {
            monitor: Monitor::new(name("ha"), vip(), seed),
            now: Instant::from_secs(1),
            ifindex: None,
            vip: false,
            last_index: 1,
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
        let mut world = Self::new(script.len() as u32);
        for step in script.chunks(2) {
            world.step(step[0], step.get(1).copied().unwrap_or_default());
        }
        world.come_to_rest();
        let truth = world.truth();
        assert_eq!(world.file, Some(truth), "the state file holds the truth");
        assert_eq!(world.acknowledged, Some(truth), "the agent has said 200 to the truth");
        assert!(world.ready);
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
            6 => self.emit(Input::Kernel(Body::NewAddress(address(99)))),
            7 => self.emit(Input::Kernel(Body::NewLink(link(99, "other")))),
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
        match how % 6 {
            0 => self.next_dump_end = DumpEnd::Interrupted,
            1 => self.next_dump_end = DumpEnd::Failed(Errno(16)),
            2 => self.next_dump_end = DumpEnd::TimedOut,
            3 => self.queue.push_back(Input::Unreadable),
            4 => self.feed(&Input::ForeignSender(7)),
            _ => self.overrun = true,
        }
    }

    fn set_vip(&mut self, present: bool) {
        let Some(ifindex) = self.ifindex else { return };
        if present != self.vip {
            self.vip = present;
            let body = if present { Body::NewAddress } else { Body::DelAddress };
            self.emit(Input::Kernel(body(address(ifindex))));
        } else if present {
            // A refresh.
            self.emit(Input::Kernel(Body::NewAddress(address(ifindex))));
        }
    }

    fn create_interface(&mut self) {
        if self.ifindex.is_none() {
            self.last_index += 1;
            self.ifindex = Some(self.last_index);
            self.emit(Input::Kernel(Body::NewLink(link(self.last_index, "ha"))));
        }
    }

    fn lose_interface(&mut self, renamed: bool) {
        let Some(ifindex) = self.ifindex.take() else { return };
        if renamed {
            self.emit(Input::Kernel(Body::NewLink(link(ifindex, "away"))));
        } else {
            if self.vip {
                self.emit(Input::Kernel(Body::DelAddress(address(ifindex))));
            }
            self.emit(Input::Kernel(Body::DelLink(link(ifindex, "ha"))));
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
                if self.queue.is_empty() {
                    self.congested = false;
                    // The rest of a dump is queued when there is room for it.
                    if let Some(end) = self.dump.take()
                        && end != DumpEnd::TimedOut
                    {
                        self.queue.push_back(Input::DumpEnded(end));
                    }
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
        while let Some(deadline) = self.monitor.deadline()
            && deadline <= end
            && !self.exited
        {
            self.now = self.now.max(deadline);
            self.read(usize::MAX);
            let due = self.monitor.deadline().is_some_and(|next| next <= self.now);
            assert!(
                !due || self.exited,
                "a deadline that does not move: {:?} {:?} {:?}",
                self.monitor,
                self.now,
                self.queue
            );
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
        for action in self.monitor.on(input, self.now) {
            if let Some(outcome) = self.carry_out(&action) {
                self.feed(&outcome);
            }
        }
    }

    fn carry_out(&mut self, action: &Action) -> Option<Input> {
        match *action {
            Action::DumpLinks => self.begin_dump(|world| {
                let other = Input::Kernel(Body::NewLink(link(1, "lo")));
                let ours =
                    world.ifindex.map(|ifindex| Input::Kernel(Body::NewLink(link(ifindex, "ha"))));
                [Some(other), ours]
            }),
            Action::DumpAddresses(ifindex) => self.begin_dump(|world| {
                let there = world.vip && world.ifindex == Some(ifindex);
                // As without strict checking, those of other interfaces come too.
                let other = Input::Kernel(Body::NewAddress(address(99)));
                [Some(other), there.then(|| Input::Kernel(Body::NewAddress(address(ifindex))))]
            }),
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
            Action::Exit => {
                self.exited = true;
                None
            }
            Action::Log(_) | Action::LogStatus(_) | Action::ReopenLog => None,
        }
    }

    fn begin_dump(&mut self, content: impl FnOnce(&Self) -> [Option<Input>; 2]) -> Option<Input> {
        assert!(self.dump.is_none(), "two dumps at once");
        let end = std::mem::replace(&mut self.next_dump_end, DumpEnd::Complete);
        if let DumpEnd::Failed(_) = end {
            return Some(Input::DumpEnded(end));
        }
        self.queue.extend(content(self).into_iter().flatten());
        self.dump = Some(end);
        None
    }

    /// Everything works from now on; waits until there is nothing left to do.
    fn come_to_rest(&mut self) {
        (self.disk_works, self.agent_listens) = (true, true);
        for _ in 0..1000 {
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
    Address { ifindex, cidr: vip(), peer: vip().address(), flags: AddressFlags::Permanent }
}

fn link(ifindex: u32, name_: &str) -> Link {
    Link { ifindex, name: Some(name(name_)), flags: LinkFlags::Up, mac: None }
}
