//! The station as which this host asks for the VIP, so that asking harms nobody.
//!
//! A question from an address and a MAC of this host's own changes no cache and no switch: the answer is a unicast. The
//! virtual MAC of a VRRP instance is not its own, so the link below it asks. Other VIPs of keepalived are not its own
//! addresses either: they are as old as the VIP. Lists of addresses and links say what to use.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use heapless::Vec;
use netlink_packet_route::address::AddressFlags;

use super::virtual_router;
use crate::monitor::vip::Vip;
use crate::monitor::{Duration, Instant, Question};
use crate::wire::rtnl::{Address, Body, Mac};

/// A question about the VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The index of the interface that sends it.
    pub ifindex: u32,
    /// Its current MAC.
    pub mac: Mac,
    /// The sender's address; without one unspecified.
    pub from: IpAddr,
    /// The destination of the answer to an ARP request: broadcast if both masters may have this MAC, because no switch
    /// forwards a frame from a MAC to itself.
    pub answer_to: Mac,
}

/// keepalived adds all VIPs of an instance within this time, in hundredths of a second.
const VIPS_WITHIN: u32 = 100;
/// A list stays valid for this time where the kernel's filter drops events of addresses.
const VALID: Duration = Duration::from_secs(60);
/// The longest time that a question waits for a list.
const PATIENCE: Duration = Duration::from_millis(500);
/// The links of this host whose MACs are known.
const MAX_LINKS: usize = 1024;

/// A list that the kernel gives.
#[derive(Debug, Default)]
struct List {
    requested: Option<Instant>,
    /// The start of the answer in progress, unless an event since has changed the list.
    began: Option<Instant>,
    /// The start of the last complete answer, unless an event since has changed the list.
    valid_at: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Asker {
    addresses: List,
    links: List,
    /// The own address to ask from.
    from: Option<IpAddr>,
    /// The MAC of the link below one with a virtual MAC.
    mac: Option<Mac>,
    /// The best address in the running list, and the VIP there.
    candidate: Option<Address>,
    vip: Option<Address>,
    /// The MACs of this host's links, in the last list of links.
    own: Vec<Mac, MAX_LINKS>,
}

impl Asker {
    /// Handles an event, after which the lists may be outdated.
    pub(super) fn handle_event(&mut self, body: &Body) {
        match body {
            Body::DelAddress(address) => {
                let ip = Some(address.cidr.address());
                let is_candidate = ip == self.candidate.map(|own| own.cidr.address());
                if ip == self.from || is_candidate {
                    (self.addresses, self.from, self.candidate) = (List::default(), None, None);
                }
            }
            Body::NewLink(_) | Body::DelLink(_) => {
                self.links = List::default();
            }
            _ => {}
        }
    }

    /// Handles the start of an answer about all addresses or links.
    pub(super) fn handle_list_begin(&mut self, question: Question, now: Instant) {
        if question == Question::Links {
            self.links.began = Some(now);
            self.own.clear();
        } else {
            (self.addresses.began, self.candidate, self.vip) = (Some(now), None, None);
        }
    }

    /// Handles an entry of such an answer.
    pub(super) fn handle_listed(&mut self, body: &Body, vip: &Vip) {
        match body {
            Body::NewAddress(address) if vip.is_vip(address) => {
                self.vip = Some(*address);
            }
            Body::NewAddress(address)
                if Some(address.ifindex) == vip.own_link()
                    && is_usable(address, vip.ip())
                    && self.candidate.is_none_or(|best| rank(address) < rank(&best)) =>
            {
                self.candidate = Some(*address);
            }
            Body::NewLink(link) => {
                if Some(link.ifindex) == vip.own_link().filter(|own| Some(*own) != vip.ifindex()) {
                    self.mac = link.mac.filter(|mac| virtual_router(*mac).is_none());
                }
                // A link beyond the room seems to be another station.
                let _ = link.mac.map(|mac| self.own.push(mac));
            }
            _ => {}
        }
    }

    /// Handles the complete end of such an answer.
    pub(super) fn handle_list_end(&mut self, question: Question) {
        let list = if question == Question::Links { &mut self.links } else { &mut self.addresses };
        let valid_at = list.began.take();
        if question == Question::Links {
            self.links = List { valid_at, ..List::default() };
        } else if let Some(vip) = self.vip {
            self.from =
                self.candidate.filter(|own| is_older(own, &vip)).map(|own| own.cidr.address());
            self.addresses = List { valid_at, ..List::default() };
        }
    }

    /// Returns what to ask the kernel for before the next question, if anything. Links have to be listed after `suspected`.
    pub(super) fn wanted(
        &mut self,
        vip: &Vip,
        suspected: Option<Instant>,
        now: Instant,
    ) -> Option<Question> {
        let is_filtered = vip.own_link().is_some_and(|own| Some(own) != vip.ifindex());
        let lists = [
            (Question::Addresses { only: None }, &mut self.addresses, None),
            (Question::Links, &mut self.links, suspected),
        ];
        lists.into_iter().find_map(|(question, list, since)| {
            let is_valid = list.valid_at.is_some_and(|at| {
                since.is_none_or(|since| at >= since) && (!is_filtered || now < at + VALID)
            });
            if is_valid || list.requested.is_some() {
                return None;
            }
            list.requested = Some(now);
            Some(question)
        })
    }

    /// Returns when to ask although a list is missing. None: at any time.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let requested = [&self.addresses, &self.links].map(|list| list.requested);
        requested.into_iter().flatten().max().map(|requested| requested + PATIENCE)
    }

    /// Lets a list that has not come be requested again.
    pub(super) fn give_up(&mut self) {
        (self.addresses.requested, self.links.requested) = (None, None);
    }

    /// Returns the question to send: the `ordinary` one comes from an address even in IPv4. None: without an address a
    /// question would harm others, unless it `may_harm`.
    pub(super) fn question(&self, vip: &Vip, ordinary: bool, may_harm: bool) -> Option<Probe> {
        let (ifindex, mac) = (vip.ifindex()?, vip.mac()?);
        let (ifindex, own_mac) = vip.own_link().zip(self.mac).unwrap_or((ifindex, mac));
        let is_own = virtual_router(own_mac).is_none();
        let unspecified: IpAddr = if vip.ip().is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        // A switch would learn from a virtual MAC, and hosts its address.
        let from = self.from.filter(|from| is_own && (ordinary || from.is_ipv6()));
        let from = from.unwrap_or(unspecified);
        let answer_to = if is_own { own_mac } else { [0xff; 6] };
        let is_harmless = !from.is_unspecified() || from.is_ipv4() && is_own;
        (is_harmless || may_harm).then_some(Probe { ifindex, mac: own_mac, from, answer_to })
    }

    /// Returns whether a MAC is that of a link of this host.
    pub(super) fn is_own(&self, mac: Mac) -> bool {
        self.mac == Some(mac) || self.own.contains(&mac)
    }
}

/// Returns whether this host may ask from an address. In IPv4 only hosts of the same subnet answer for sure.
fn is_usable(address: &Address, vip: IpAddr) -> bool {
    let bad = AddressFlags::Tentative | AddressFlags::Dadfailed;
    // A second IPv4 address in a subnet (`IFA_F_SECONDARY`) may be a VIP.
    let bad = if vip.is_ipv4() { bad | AddressFlags::Secondary } else { bad };
    let ip = address.cidr.address();
    !address.flags.intersects(bad)
        && ip != vip
        && ip.is_ipv4() == vip.is_ipv4()
        && (ip.is_ipv6() || address.cidr.contains(vip))
}

/// Returns whether an address was there before those that keepalived added with the VIP. A second IPv4 address in a subnet
/// is secondary.
fn is_older(own: &Address, vip: &Address) -> bool {
    let age = vip.created.wrapping_sub(own.created);
    let is_second = vip.cidr.address().is_ipv4() && vip.flags.contains(AddressFlags::Secondary);
    (if is_second { 1 } else { VIPS_WITHIN }..u32::MAX / 2).contains(&age)
}

/// Returns the order of preference: link-local addresses first, then the oldest.
fn rank(address: &Address) -> (bool, u32) {
    let is_local = matches!(address.cidr.address(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!is_local, address.created)
}
