//! The kernel: the place of the VIP, a queue that overruns, failing dumps, and misleading messages.

use std::collections::VecDeque;
use std::net::IpAddr;

use keepwatch::monitor::{Dump, DumpResult, Input};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac, Message};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

/// The port of the core's socket.
pub const PORT: u32 = 4711;
/// The port of another process, which changes links and addresses.
const OTHER_PORT: u32 = 815;
/// The kernel's answer about a missing interface.
const ENODEV: i32 = 19;

/// The number of events in a full queue.
const QUEUE: usize = 6;

pub const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);
/// The MAC of the watched interface, unless that has the next one.
pub const MAC: Mac = [2, 0, 0, 0, 0, 1];
/// The virtual MAC of its VRRP instance.
pub const VIRTUAL_MAC: Mac = [0, 0, 0x5e, 0, 1, 5];

/// What a message must mean to the core.
#[derive(Clone, Copy, Debug, Default)]
pub enum Meaning {
    Event,
    Listed,
    Ended(DumpResult),
    #[default]
    Nothing,
}

/// A message in the queue, and its meaning.
type Queued = (Input, Meaning);

/// The dump under way.
#[derive(Debug, Default)]
enum Dumping {
    #[default]
    None,
    Endless,
    /// The end, which is read after the queue.
    Ends(Queued),
    /// The content at the time of the request, which is listed after later events: `inet_dump_ifaddr` in
    /// `net/ipv4/devinet.c` takes no RTNL lock.
    Lags(Request, u32, Vec<Body>),
}

/// The kind of a dump, and for addresses the only interface if it has one.
pub type Request = (Dump, Option<u32>);

#[derive(Debug, Default)]
pub struct Kernel {
    has_ipv6_vip: bool,
    /// The watched interface has an address of its own, which is older than the VIP.
    pub has_own_address: bool,
    /// The index of the watched interface, and whether it has the VIP.
    pub ifindex: Option<u32>,
    pub has_vip: bool,
    /// The VIP has failed duplicate address detection.
    pub vip_failed: bool,
    /// Distinguishes successive interfaces with the same index.
    pub instance: u32,
    pub mac: Mac,
    pub flags: LinkFlags,
    last_index: u32,
    /// Misplaced addresses, except those on our other links.
    pub misplaced: Vec<Address>,
    /// The only interface whose address events pass the filter, or 0 for none. The VIP's events always pass.
    pub filter: Option<u32>,
    queue: VecDeque<Queued>,
    /// The meaning of the last message read.
    pub meaning: Meaning,
    /// After an overrun, events are dropped until the queue is empty.
    congested: bool,
    overrun: bool,
    dump: Dumping,
    /// The sequence number of the last request.
    sequence: u32,
    /// A dump without an end: its sequence number, and its content, which may still come later.
    unfinished: Option<(u32, Vec<Body>)>,
    /// At least one dump was interrupted.
    pub has_interrupted: bool,
    /// The number of events so far.
    events: u32,
    /// The failure of the next dump, if any.
    pub next_dump_end: Option<DumpResult>,
    /// The next dump lists its content as it was at the request, after the events since.
    pub next_dump_lags: bool,
    /// Dumps list the addresses of all interfaces, as before Linux 4.20.
    lists_unfiltered: bool,
    /// Another link has the watched name as alternative name.
    pub alternative: bool,
    /// The core knows that no interface has the watched name.
    pub absence_known: bool,
    /// The core has known that at least once.
    pub has_been_absent: bool,
    /// The watched interface, if the core knows its MAC.
    pub mac_known: Option<u32>,
    /// The running dump is for the watched name.
    by_name: bool,
    /// That dump, or an event since its begin, has shown the interface.
    is_shown: bool,
    /// Such a dump has shown the link with the alternative name.
    pub alternative_known: bool,
}

impl Kernel {
    pub fn new(has_ipv6_vip: bool, has_virtual_mac: bool, lists_unfiltered: bool) -> Self {
        let mac = if has_virtual_mac { VIRTUAL_MAC } else { MAC };
        Self { has_ipv6_vip, mac, lists_unfiltered, flags: UP, last_index: 1, ..Self::default() }
    }

    pub fn vip(&self) -> Cidr {
        let vip = if self.has_ipv6_vip { "fd00::5/64" } else { "169.254.0.5/24" };
        vip.parse().expect("an address")
    }

    /// Returns the own address of the watched interface, if any.
    pub fn own_address(&self) -> Option<IpAddr> {
        let own: [IpAddr; 2] = [[169, 254, 0, 1].into(), [0xfe80, 0, 0, 0, 0, 0, 0, 1].into()];
        self.has_own_address.then_some(own[usize::from(self.has_ipv6_vip)])
    }

    pub fn set_vip(&mut self, present: bool) {
        let Some(ifindex) = self.ifindex else { return };
        let vip = self.address(ifindex);
        if present != self.has_vip {
            (self.has_vip, self.vip_failed) = (present, false);
            self.emit(if present { Body::NewAddress(vip) } else { Body::DelAddress(vip) });
        } else if present {
            self.emit(Body::NewAddress(Address { refreshed: true, ..vip }));
        }
    }

    /// Lets duplicate address detection of the VIP fail.
    pub fn fail_vip(&mut self) {
        if let Some(ifindex) = self.ifindex.filter(|_| self.has_vip) {
            self.vip_failed = true;
            self.emit(Body::NewAddress(self.address(ifindex)));
        }
    }

    pub fn create_interface(&mut self) {
        if self.ifindex.is_none() {
            // The kernel refuses a name that is an alternative name.
            self.alternative = false;
            let ifindex = self.new_index();
            self.create_interface_at(ifindex);
        }
    }

    fn create_interface_at(&mut self, ifindex: u32) {
        self.ifindex = Some(ifindex);
        self.instance += 1;
        self.emit(Body::NewLink(self.watched(ifindex, "ha")));
    }

    pub fn lose_interface(&mut self, renamed: bool) {
        let Some(ifindex) = self.ifindex.take() else { return };
        if renamed {
            let vip = self.address(ifindex);
            self.misplaced.extend((self.has_vip && !self.vip_failed).then_some(vip));
            self.emit(Body::NewLink(self.watched(ifindex, "away")));
        } else {
            let is_gone = |address: &mut Address| address.ifindex == ifindex;
            for address in self.misplaced.extract_if(.., is_gone).collect::<Vec<_>>() {
                self.emit(Body::DelAddress(address));
            }
            if self.has_vip {
                self.emit(Body::DelAddress(self.address(ifindex)));
            }
            self.emit(Body::DelLink(self.watched(ifindex, "ha")));
        }
        (self.has_vip, self.vip_failed) = (false, false);
    }

    /// Adds the VIP's address to the watched interface as a host address, or removes it.
    pub fn misplace_vip(&mut self) {
        let Some(ifindex) = self.ifindex else { return };
        let ip = self.vip().address();
        let cidr = Cidr::new(ip, if ip.is_ipv4() { 32 } else { 128 }).expect("an address");
        let address = address(ifindex, cidr, AddressFlags::Permanent);
        if let Some(at) = self.misplaced.iter().position(|known| *known == address) {
            self.misplaced.remove(at);
            self.emit(Body::DelAddress(address));
        } else {
            self.misplaced.push(address);
            self.emit(Body::NewAddress(address));
        }
    }

    /// Moves the interface to another namespace and back, after which it is new, with its old index.
    pub fn return_interface(&mut self) {
        if let Some(ifindex) = self.ifindex {
            self.lose_interface(false);
            self.create_interface_at(ifindex);
        }
    }

    fn watched(&self, ifindex: u32, name: &str) -> Link {
        Link { mac: Some(self.mac), flags: self.flags, ..link(ifindex, name) }
    }

    pub fn set_flags(&mut self, flags: LinkFlags) {
        self.flags = flags;
        if let Some(link) = self.interface(None) {
            self.emit(link);
        }
    }

    /// Returns an index that has not been used yet.
    pub fn new_index(&mut self) -> u32 {
        self.last_index += 1;
        self.last_index
    }

    fn address(&self, ifindex: u32) -> Address {
        let failed = AddressFlags::Dadfailed | AddressFlags::Tentative;
        let flags = if self.vip_failed { failed } else { AddressFlags::Permanent };
        Address { created: 1000, ..address(ifindex, self.vip(), flags) }
    }

    /// Queues an event that passes the filter. Without room, it is dropped with all others until the queue is empty.
    pub fn emit(&mut self, event: Body) {
        let passes = match &event {
            Body::NewAddress(address) | Body::DelAddress(address) => {
                let has_ip = address.cidr.address() == self.vip().address();
                has_ip || self.filter.is_none_or(|ifindex| ifindex == address.ifindex)
            }
            _ => true,
        };
        if self.congested || !passes {
            return;
        }
        if self.queue.len() < QUEUE {
            let (port, sequence) = self.cause(&event);
            self.queue_message(event, port, sequence, Meaning::Event);
        } else {
            (self.congested, self.overrun) = (true, true);
        }
    }

    /// Returns port and sequence number of the request that caused an event. For a link, it may come from another
    /// namespace, where another socket has the core's port.
    fn cause(&mut self, event: &Body) -> (u32, u32) {
        self.events += 1;
        let is_link = matches!(event, Body::NewLink(_) | Body::DelLink(_));
        match self.events % 3 {
            0 => (0, 0),
            1 if is_link => (PORT, self.sequence.wrapping_sub(1)),
            _ => (OTHER_PORT, self.sequence),
        }
    }

    fn queue_message(&mut self, body: Body, port: u32, sequence: u32, meaning: Meaning) {
        let message = Message { body, sequence, port, interrupted: false };
        self.queue.push_back((Input::Netlink(message), meaning));
    }

    /// Queues an input that is no event.
    pub fn insert(&mut self, input: Input) {
        self.queue.push_back((input, Meaning::Nothing));
    }

    /// Returns the next message.
    pub fn read(&mut self) -> Input {
        if std::mem::take(&mut self.overrun) {
            return Input::Overrun;
        }
        let queued = self.queue.pop_front().or_else(|| {
            self.congested = false;
            let Dumping::Ends(end) = std::mem::take(&mut self.dump) else { return None };
            Some(end)
        });
        let (input, meaning) = queued.unwrap_or((Input::QueueEmpty, Meaning::Nothing));
        self.meaning = meaning;
        input
    }

    pub fn has_unread(&self) -> bool {
        self.overrun || !self.queue.is_empty() || !matches!(self.dump, Dumping::None)
    }

    /// Returns the link with the watched name, or `other` if that is its alternative name.
    pub fn interface(&self, other: Option<Body>) -> Option<Body> {
        let own = self.ifindex.map(|ifindex| Body::NewLink(self.watched(ifindex, "ha")));
        own.or(other.filter(|_| self.alternative))
    }

    /// Whether the last message is current for the watched interface. A dump of all links may be older than an event.
    pub fn is_news(&self) -> bool {
        matches!(self.meaning, Meaning::Event) || self.by_name
    }

    /// Notes what the core learns of the watched interface.
    pub fn note(&mut self, input: &Input) {
        let Input::Netlink(Message { body, .. }) = input else { return };
        let [ha, away] = ["ha", "away"].map(|of| Some(name(of)));
        match (self.meaning, body) {
            (Meaning::Event, Body::NewLink(link)) if link.name == ha => self.note_presence(link),
            (Meaning::Listed, Body::NewLink(link)) if link.name == ha && self.by_name => {
                self.note_presence(link);
            }
            (Meaning::Event, Body::DelLink(link)) if link.name == ha => self.absence_known = true,
            (Meaning::Event, Body::NewLink(link)) if link.name == away => self.absence_known = true,
            (Meaning::Listed, Body::NewLink(_)) => self.alternative_known |= self.by_name,
            (Meaning::Ended(DumpResult::Complete), _) => {
                self.absence_known |= self.by_name && !self.is_shown;
            }
            _ => {}
        }
        self.has_been_absent |= self.absence_known;
        self.mac_known.take_if(|_| self.absence_known);
    }

    fn note_presence(&mut self, link: &Link) {
        (self.absence_known, self.is_shown) = (false, true);
        self.mac_known = link.mac.map(|_| link.ifindex).or(self.mac_known);
    }

    /// Returns the VIP and its misplaced addresses, for a dump.
    pub fn listed_vip(&self) -> impl Iterator<Item = Body> {
        let vip = self.ifindex.filter(|_| self.has_vip).map(|ifindex| self.address(ifindex));
        let own = self.own_address().and_then(|ip| Cidr::new(ip, 24)).zip(self.ifindex);
        let own = own.map(|(cidr, ifindex)| address(ifindex, cidr, AddressFlags::Permanent));
        self.misplaced.iter().copied().chain(vip).chain(own).map(Body::NewAddress)
    }

    /// Whether a dump of only this interface's addresses contains a message.
    pub fn lists(&self, only: Option<u32>, body: &Body) -> bool {
        let Body::NewAddress(address) = body else { return true };
        self.lists_unfiltered || only.is_none_or(|only| only == address.ifindex)
    }

    /// Begins a dump. Returns an input if the request could not be sent.
    pub fn begin_dump(
        &mut self,
        (dump, only): Request,
        sequence: u32,
        content: Vec<Body>,
    ) -> Option<Input> {
        assert!(matches!(self.dump, Dumping::None), "p8_one_dump_at_a_time");
        assert_ne!(sequence, self.sequence, "p8_replies_are_told_apart");
        self.sequence = sequence;
        self.by_name = false;
        let result = self.next_dump_end.take().unwrap_or(DumpResult::Complete);
        if let DumpResult::Failed(errno) = result
            && sequence.is_multiple_of(2)
        {
            return Some(Input::RequestFailed(errno));
        }
        (self.by_name, self.is_shown) = (dump == Dump::Interface, false);
        self.finish_the_last_dump();
        // The end of another process's dump has no meaning.
        self.queue_message(Body::Done(None), OTHER_PORT, sequence, Meaning::Nothing);
        // The kernel answers a request for one link under the RTNL lock.
        let may_lag = dump != Dump::Interface && result == DumpResult::Complete;
        if std::mem::take(&mut self.next_dump_lags) && may_lag {
            self.dump = Dumping::Lags((dump, only), sequence, content);
        } else {
            self.list((dump, only), sequence, content, result);
        }
        None
    }

    /// Returns the lagging dump, once all events have been read.
    pub fn lagging_dump(&self) -> Option<Request> {
        match self.dump {
            Dumping::Lags(dump, ..) if self.queue.is_empty() && !self.overrun => Some(dump),
            _ => None,
        }
    }

    /// Lists what is new since the request, and the content at the request.
    pub fn catch_up(&mut self, mut present: Vec<Body>) {
        let Dumping::Lags(request, sequence, content) = std::mem::take(&mut self.dump) else {
            return;
        };
        present.retain(|new| !content.iter().any(|old| is_same(old, new)));
        present.extend(content);
        self.list(request, sequence, present, DumpResult::Complete);
    }

    /// Queues the rest of a dump that has timed out, which may be outdated.
    fn finish_the_last_dump(&mut self) {
        let Some((sequence, content)) = self.unfinished.take() else { return };
        let addresses = content.into_iter().filter(|body| matches!(body, Body::NewAddress(_)));
        for body in addresses.chain([Body::Done(None)]) {
            let message = Message { body, sequence, port: PORT, interrupted: true };
            self.queue.push_back((Input::Netlink(message), Meaning::Nothing));
        }
    }

    fn list(
        &mut self,
        (dump, only): Request,
        sequence: u32,
        mut content: Vec<Body>,
        result: DumpResult,
    ) {
        let mut end = Body::Done(None);
        let mut interrupted = false;
        match result {
            DumpResult::Failed(errno) => (content, end) = (Vec::new(), Body::Error(errno.0)),
            DumpResult::Interrupted => {
                (interrupted, self.has_interrupted) = (true, true);
                content.pop();
            }
            DumpResult::TimedOut => self.unfinished = Some((sequence, content.clone())),
            // A missing interface looks like one without addresses.
            _ if content.is_empty() && (dump == Dump::Interface || only.is_some()) => {
                let result = sequence.is_multiple_of(2);
                end = if result { Body::Done(Some(ENODEV)) } else { Body::Error(ENODEV) };
            }
            _ => {}
        }
        for body in content {
            let interrupted = std::mem::take(&mut interrupted);
            let message = Message { body, sequence, port: PORT, interrupted };
            self.queue.push_back((Input::Netlink(message), Meaning::Listed));
        }
        let end = Message { body: end, sequence, port: PORT, interrupted };
        self.dump = match result {
            DumpResult::TimedOut => Dumping::Endless,
            _ => Dumping::Ends((Input::Netlink(end), Meaning::Ended(result))),
        };
    }
}

/// Whether both are about the same link or address.
fn is_same(a: &Body, b: &Body) -> bool {
    match (a, b) {
        (Body::NewLink(a), Body::NewLink(b)) => a.ifindex == b.ifindex,
        (Body::NewAddress(a), Body::NewAddress(b)) => (a.ifindex, a.cidr) == (b.ifindex, b.cidr),
        _ => false,
    }
}

pub fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name.as_bytes()).expect("a legal name")
}

pub fn address(ifindex: u32, cidr: Cidr, flags: AddressFlags) -> Address {
    Address { ifindex, cidr, peer: cidr.address(), flags, created: 0, refreshed: false }
}

/// Returns the event of a wireless driver, which has only the name of the link.
pub fn wireless(link: Body) -> Body {
    let Body::NewLink(link) = link else { panic!("no link") };
    Body::NewLink(Link { mac: None, carrier_changes: None, ipv6_forwarding: None, ..link })
}

pub fn link(ifindex: u32, name_: &str) -> Link {
    Link {
        ifindex,
        name: Some(name(name_)),
        flags: UP,
        ethernet: true,
        mac: Some(MAC),
        parent: None,
        carrier_changes: Some(0),
        ipv6_forwarding: None,
    }
}
