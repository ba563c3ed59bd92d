//! The kernel: the place of the VIP, a queue that overruns, answers in parts, and misleading messages.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use keepwatch::monitor::{Answer, Input, Question};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

/// The number of events in a full queue.
pub const QUEUE: usize = 6;

pub const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);
/// The MAC of the watched interface, unless that has the next one.
pub const MAC: Mac = [2, 0, 0, 0, 0, 1];
/// The virtual MAC of its VRRP instance.
pub const VIRTUAL_MAC: Mac = [0, 0, 0x5e, 0, 1, 5];

/// An answer of which parts are still to come.
#[derive(Debug)]
struct Open {
    question: Question,
    /// The number of entries so far.
    listed: usize,
    /// The number of changes at its start.
    changes: u32,
}

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
    /// The former watched interfaces.
    away: BTreeMap<u32, Link>,
    /// Misplaced addresses, except those on our other links.
    pub misplaced: Vec<Address>,
    /// Only events of the VIP's address pass.
    pub is_filtered: bool,
    queue: VecDeque<Input>,
    /// After an overrun, events are dropped until the queue is empty.
    congested: bool,
    overrun: bool,
    open: Option<Open>,
    /// The number of changes so far.
    changes: u32,
    /// The end of the next answer, unless that is complete.
    pub next_answer: Option<Answer>,
    /// The next answer comes in two parts, with events between them that change it.
    pub splits_next: bool,
    /// Answers list the addresses of all interfaces, as before Linux 4.20.
    lists_unfiltered: bool,
    /// Another link has the watched name as alternative name.
    pub alternative: bool,
    /// An answer has shown that.
    pub alternative_known: bool,
    /// How often there was no interface of the watched name, and the lines about that.
    pub absences: u32,
    pub absence_lines: u32,
    /// The watched interface, if the core knows its MAC, and if an answer has shown that which is not in use yet.
    pub mac_known: Option<u32>,
    mac_shown: Option<u32>,
    /// The flags of the watched interface that the core knows, and those in such an answer.
    pub known_flags: LinkFlags,
    shown_flags: Option<LinkFlags>,
    /// The number of datagrams since the last answer.
    datagrams: usize,
    /// An answer is not in use yet, or has been since the last input.
    is_answered: bool,
    pub is_settling: bool,
}

impl Kernel {
    pub fn new(has_ipv6_vip: bool, has_virtual_mac: bool, lists_unfiltered: bool) -> Self {
        let mac = if has_virtual_mac { VIRTUAL_MAC } else { MAC };
        Self {
            has_ipv6_vip,
            mac,
            lists_unfiltered,
            flags: UP,
            known_flags: UP,
            last_index: 1,
            ..Self::default()
        }
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
        if present && self.has_ipv6_vip {
            // An interface has each IPv6 address once, whose prefix length changes in place.
            self.misplaced.retain(|address| address.ifindex != ifindex);
        }
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
        self.absences += 1;
        if renamed {
            let vip = self.address(ifindex);
            self.misplaced.extend((self.has_vip && !self.vip_failed).then_some(vip));
            let link = self.watched(ifindex, "away");
            self.away.insert(ifindex, link.clone());
            if self.vip_failed {
                self.emit(Body::DelAddress(self.address(ifindex)));
            }
            self.emit(Body::NewLink(link));
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
            if self.has_ipv6_vip {
                (self.has_vip, self.vip_failed) = (false, false);
            }
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
        self.changes += 1;
        let passes = match &event {
            Body::NewAddress(address) | Body::DelAddress(address) => {
                !self.is_filtered || address.cidr.address() == self.vip().address()
            }
            _ => true,
        };
        if self.congested || !passes {
            return;
        }
        if self.queue.len() < QUEUE {
            self.queue.push_back(Input::Event(event));
        } else {
            (self.congested, self.overrun) = (true, true);
        }
    }

    /// Queues an input that is no event.
    pub fn insert(&mut self, input: Input) {
        self.queue.push_back(input);
    }

    /// Returns the next input.
    pub fn read(&mut self) -> Input {
        assert!(self.open.is_none(), "p8_no_event_is_read_during_an_answer");
        if std::mem::take(&mut self.overrun) {
            return Input::Overrun;
        }
        self.queue.pop_front().unwrap_or_else(|| {
            self.congested = false;
            Input::QueueEmpty
        })
    }

    pub fn has_unread(&self) -> bool {
        self.overrun || !self.queue.is_empty() || self.open.is_some()
    }

    /// Returns the link with the watched name, or `other` if that is its alternative name.
    pub fn interface(&self, other: Option<Body>) -> Option<Body> {
        let own = self.ifindex.map(|ifindex| Body::NewLink(self.watched(ifindex, "ha")));
        own.or(other.filter(|_| self.alternative))
    }

    /// Returns the former watched interfaces, which have other names.
    pub fn renamed(&self) -> impl Iterator<Item = Body> {
        let other = |address: &&Address| self.ifindex != Some(address.ifindex);
        let indices = self.misplaced.iter().filter(other).map(|address| address.ifindex);
        indices.filter_map(|ifindex| self.away.get(&ifindex).cloned()).map(Body::NewLink)
    }

    /// Notes what the core learns of the watched interface. `asked`: the question in progress.
    pub fn note(&mut self, input: &Input, asked: Option<Question>) {
        let is_ha = |link: &Link| link.name == Some(name("ha"));
        if self.absences == 0 && self.ifindex.is_none() {
            self.absences = 1;
        }
        match input {
            Input::Event(Body::NewLink(link)) if is_ha(link) => {
                self.known_flags = link.flags;
                self.shown_flags = self.shown_flags.map(|_| link.flags);
                self.mac_known = link.mac.map(|_| link.ifindex).or(self.mac_known);
            }
            Input::Event(Body::NewLink(link) | Body::DelLink(link)) => {
                let is_this = |known: &mut u32| *known == link.ifindex;
                self.mac_known.take_if(is_this);
                self.mac_shown.take_if(is_this);
            }
            Input::Entry(Body::NewLink(link)) if asked == Some(Question::Interface) => {
                if is_ha(link) {
                    self.mac_shown = link.mac.map(|_| link.ifindex);
                    self.shown_flags = Some(link.flags);
                } else {
                    self.alternative_known = true;
                }
            }
            // A message about another interface is no loss.
            Input::MalformedMessage(Some(ifindex)) if self.ifindex != Some(*ifindex) => {}
            Input::Overrun | Input::MalformedMessage(_) | Input::Answered(Answer::Failed(_)) => {
                (self.mac_shown, self.shown_flags) = (None, None);
            }
            _ => {}
        }
        match input {
            Input::Answered(_) => (self.datagrams, self.is_answered) = (0, true),
            Input::Event(_) | Input::MalformedMessage(_) | Input::ForeignSender(_) => {
                self.datagrams += 1;
            }
            _ => {}
        }
        // All events of before the answer have been read.
        let is_late = matches!(input, Input::Event(_)) && self.datagrams >= QUEUE;
        self.is_settling = asked.is_none() && (*input == Input::QueueEmpty || is_late);
        if self.is_settling {
            self.is_settling = std::mem::take(&mut self.is_answered);
            self.mac_known = self.mac_shown.take().or(self.mac_known);
            self.known_flags = self.shown_flags.take().unwrap_or(self.known_flags);
        }
    }

    /// Returns the VIP and its misplaced addresses, for an answer.
    pub fn listed_vip(&self) -> impl Iterator<Item = Body> {
        let vip = self.ifindex.filter(|_| self.has_vip).map(|ifindex| self.address(ifindex));
        let own = self.own_address().and_then(|ip| Cidr::new(ip, 24)).zip(self.ifindex);
        let own = own.map(|(cidr, ifindex)| address(ifindex, cidr, AddressFlags::Permanent));
        self.misplaced.iter().copied().chain(vip).chain(own).map(Body::NewAddress)
    }

    /// Whether an answer about only this interface's addresses contains an entry.
    pub fn lists(&self, only: Option<u32>, body: &Body) -> bool {
        let Body::NewAddress(address) = body else { return true };
        self.lists_unfiltered || only.is_none_or(|only| only == address.ifindex)
    }

    /// Returns the answer, or its first part. `content` is what there is.
    pub fn ask(&mut self, question: Question, mut content: Vec<Body>) -> Vec<Input> {
        assert!(self.open.is_none(), "p8_one_question_at_a_time");
        let answer = self.next_answer.take().unwrap_or(Answer::Complete);
        let has_parts = matches!(question, Question::Addresses { .. } | Question::Links);
        let splits = std::mem::take(&mut self.splits_next) && has_parts;
        match answer {
            Answer::Complete if splits => {
                let listed = content.len() / 2;
                content.truncate(listed);
                self.open = Some(Open { question, listed, changes: self.changes });
                return content.into_iter().map(Input::Entry).collect();
            }
            // The kernel answers a question about one link under the RTNL lock.
            Answer::Interrupted if has_parts => content.truncate(content.len().saturating_sub(1)),
            Answer::Failed(_) => content.truncate(content.len() / 2),
            _ => {}
        }
        let answer =
            if answer == Answer::Interrupted && !has_parts { Answer::Complete } else { answer };
        content.into_iter().map(Input::Entry).chain([Input::Answered(answer)]).collect()
    }

    /// Returns the question whose answer has another part.
    pub fn open_question(&self) -> Option<Question> {
        self.open.as_ref().map(|open| open.question)
    }

    /// Returns the rest of an answer. The kernel counts the entries, so deletions make it skip others. It sets no flag for
    /// one interface alone.
    pub fn finish(&mut self, content: Vec<Body>) -> Vec<Input> {
        let open = self.open.take().expect("an open answer");
        let is_alone = matches!(open.question, Question::Addresses { only: Some(_) });
        let has_gap = is_alone || self.changes != open.changes;
        let answer = if has_gap { Answer::Interrupted } else { Answer::Complete };
        let rest = content.into_iter().skip(open.listed).map(Input::Entry);
        rest.chain([Input::Answered(answer)]).collect()
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
