//! The kernel: where the VIP is, a queue that overflows, dumps that go wrong.

use std::collections::VecDeque;

use keepwatch::monitor::{DumpResult, Input};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

/// Events that fit into the queue.
const QUEUE: usize = 6;

pub const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);
/// The watched interface's, unless it has the next.
pub const MAC: Mac = [2, 0, 0, 0, 0, 1];
/// Of the VRRP instance.
pub const VIRTUAL_MAC: Mac = [0, 0, 0x5e, 0, 1, 5];

pub struct Kernel {
    pub cidr: Cidr,
    /// The index of the watched interface, and whether it has the VIP.
    pub ifindex: Option<u32>,
    pub vip: bool,
    /// The VIP has failed duplicate address detection.
    pub vip_failed: bool,
    /// Tells apart interfaces that have the same index one after another.
    pub instance: u32,
    pub mac: Mac,
    last_index: u32,
    /// The one interface of whose addresses there are events, or 0 for no interface.
    pub heeded: Option<u32>,
    queue: VecDeque<Input>,
    /// The queue has overflowed, and nothing more gets in until it is empty.
    congested: bool,
    overrun: bool,
    /// How the dump under way will end.
    dump: Option<DumpResult>,
    pub next_dump_end: DumpResult,
    /// The next dump of links ends before the watched interface, as if complete.
    pub cut_next_links: bool,
    /// Another link has the watched name for an alternative one.
    pub alternative: bool,
    /// The core has been told that there is no interface of the watched name, and not since that there
    /// is.
    pub absence_told: bool,
    /// The answer under way is about the watched name.
    by_name: bool,
    /// And that other link has been told of in such an answer.
    pub alternative_told: bool,
}

impl Kernel {
    pub fn new(cidr: Cidr, mac: Mac) -> Self {
        Self {
            cidr,
            ifindex: None,
            vip: false,
            vip_failed: false,
            instance: 0,
            mac,
            last_index: 1,
            heeded: None,
            queue: VecDeque::new(),
            congested: false,
            overrun: false,
            dump: None,
            next_dump_end: DumpResult::Complete,
            cut_next_links: false,
            alternative: false,
            absence_told: false,
            by_name: false,
            alternative_told: false,
        }
    }

    pub fn set_vip(&mut self, present: bool) {
        let Some(ifindex) = self.ifindex else { return };
        let vip = self.address(ifindex);
        if present != self.vip {
            (self.vip, self.vip_failed) = (present, false);
            self.emit(if present { Body::NewAddress(vip) } else { Body::DelAddress(vip) });
        } else if present {
            self.emit(Body::NewAddress(Address { refreshed: true, ..vip }));
        }
    }

    /// Another station has the VIP, too.
    pub fn fail_vip(&mut self) {
        if let Some(ifindex) = self.ifindex.filter(|_| self.vip) {
            self.vip_failed = true;
            self.emit(Body::NewAddress(self.address(ifindex)));
        }
    }

    pub fn create_interface(&mut self) {
        if self.ifindex.is_none() {
            // It could not be made else.
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
            self.emit(Body::NewLink(self.watched(ifindex, "away")));
        } else {
            if self.vip {
                self.emit(Body::DelAddress(self.address(ifindex)));
            }
            self.emit(Body::DelLink(self.watched(ifindex, "ha")));
        }
        (self.vip, self.vip_failed) = (false, false);
    }

    /// It goes to another namespace and comes back: as a new one, with its old index.
    pub fn return_interface(&mut self) {
        if let Some(ifindex) = self.ifindex {
            self.lose_interface(false);
            self.create_interface_at(ifindex);
        }
    }

    fn watched(&self, ifindex: u32, name: &str) -> Link {
        Link { mac: Some(self.mac), ..link(ifindex, name) }
    }

    /// None of these has been used before.
    pub fn new_index(&mut self) -> u32 {
        self.last_index += 1;
        self.last_index
    }

    fn address(&self, ifindex: u32) -> Address {
        let failed = AddressFlags::Dadfailed | AddressFlags::Tentative;
        let flags = if self.vip_failed { failed } else { AddressFlags::Permanent };
        address(ifindex, self.cidr, flags)
    }

    /// What does not fit is dropped, and everything after it until the queue has been read empty; what
    /// nobody wants to hear of takes no room.
    pub fn emit(&mut self, event: Body) {
        let heeded = match &event {
            Body::NewAddress(address) | Body::DelAddress(address) => {
                self.heeded.is_none_or(|ifindex| ifindex == address.ifindex)
            }
            _ => true,
        };
        if self.congested || !heeded {
            return;
        }
        if self.queue.len() < QUEUE {
            self.queue.push_back(Input::Event(event));
        } else {
            self.congested = true;
            self.overrun = true;
        }
    }

    /// Queues something that is no event.
    pub fn insert(&mut self, input: Input) {
        self.queue.push_back(input);
    }

    /// What the next read gives.
    pub fn read(&mut self) -> Input {
        if std::mem::take(&mut self.overrun) {
            return Input::Overrun;
        }
        if let Some(input) = self.queue.pop_front() {
            return input;
        }
        self.congested = false;
        // The rest of a dump is queued when there is room for it.
        match self.dump.take() {
            None | Some(DumpResult::TimedOut) => Input::QueueEmpty,
            Some(end) => Input::DumpEnded(end),
        }
    }

    pub fn has_unread(&self) -> bool {
        self.overrun || !self.queue.is_empty() || self.dump.is_some()
    }

    /// The watched interface, for a dump of all links.
    pub fn link(&mut self) -> Option<Body> {
        let cut = std::mem::take(&mut self.cut_next_links);
        self.ifindex.filter(|_| !cut).map(|ifindex| Body::NewLink(self.watched(ifindex, "ha")))
    }

    /// Answers what link has the watched name; `other` may have it for an alternative one.
    pub fn request_interface(&mut self, other: Option<Body>) -> Option<Input> {
        let own = self.ifindex.map(|ifindex| Body::NewLink(self.watched(ifindex, "ha")));
        let found = own.or(other.filter(|_| self.alternative));
        let failed = self.begin_dump(found.into_iter().collect());
        self.by_name = failed.is_none();
        failed
    }

    /// Notes what the core learns of the watched interface.
    pub fn tell(&mut self, input: &Input) {
        match input {
            Input::Event(Body::NewLink(link)) | Input::Listed(Body::NewLink(link))
                if link.name == Some(name("ha")) =>
            {
                self.absence_told = false;
                self.by_name = false;
            }
            Input::Event(Body::DelLink(link)) if link.name == Some(name("ha")) => {
                self.absence_told = true;
            }
            Input::Event(Body::NewLink(link)) if link.name == Some(name("away")) => {
                self.absence_told = true;
            }
            Input::Listed(Body::NewLink(_)) => self.alternative_told |= self.by_name,
            Input::DumpEnded(DumpResult::Complete) => self.absence_told |= self.by_name,
            _ => {}
        }
    }

    /// What a wireless driver tells of the watched interface.
    pub fn wireless_event(&self) -> Option<Body> {
        let watched = self.ifindex.map(|ifindex| Body::NewLink(self.watched(ifindex, "ha")));
        watched.map(wireless)
    }

    /// The VIP, for a dump of an interface.
    pub fn listed_vip(&self, ifindex: u32) -> Option<Body> {
        let there = self.vip && self.ifindex == Some(ifindex);
        there.then(|| Body::NewAddress(self.address(ifindex)))
    }

    /// Some: it failed at once.
    pub fn begin_dump(&mut self, content: Vec<Body>) -> Option<Input> {
        assert!(self.dump.is_none(), "two dumps at once");
        self.by_name = false;
        let end = std::mem::replace(&mut self.next_dump_end, DumpResult::Complete);
        if let DumpResult::Failed(_) = end {
            return Some(Input::DumpEnded(end));
        }
        self.queue.extend(content.into_iter().map(Input::Listed));
        self.dump = Some(end);
        None
    }
}

pub fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name.as_bytes()).expect("a legal name")
}

pub fn address(ifindex: u32, cidr: Cidr, flags: AddressFlags) -> Address {
    Address { ifindex, cidr, peer: cidr.address(), flags, refreshed: false }
}

/// The same link in a message that mentions no more than its name.
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
        carrier_changes: Some(0),
        ipv6_forwarding: None,
    }
}
