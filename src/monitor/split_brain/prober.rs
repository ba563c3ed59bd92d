//! The station as which this host probes for the VIP, so that no probe harms others.
//!
//! A probe from an address and a MAC of this host's own changes no cache and no switch: the answer is a unicast. The
//! virtual MAC of a VRRP instance is not its own, so the link below it asks. Other VIPs of keepalived are not its own
//! addresses either: they are as old as the VIP. Lists of addresses and links say what to use.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use heapless::Vec;
use netlink_packet_route::address::AddressFlags;

use crate::monitor::places::Place;
use crate::monitor::vip::Vip;
use crate::monitor::vrrp::virtual_router_id;
use crate::monitor::{Duration, Instant, Question};
use crate::wire::rtnl::{Address, Link, Mac};

/// A frame that asks other stations who has the VIP.
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
/// The longest time that a probe waits for a list.
const PATIENCE: Duration = Duration::from_millis(500);
/// The links of this host whose MACs are known: the first ones that the kernel lists, so those of the machine come
/// first. The table is moved with the monitor at the start, so each link costs every daemon 30 bytes.
const MAX_LINKS: usize = 256;

/// A list that the kernel gives.
#[derive(Clone, Copy, Debug, Default)]
enum List {
    #[default]
    Missing,
    /// It was requested then.
    Requested(Instant),
    Known,
}

#[derive(Debug, Default)]
pub(super) struct Prober {
    /// The addresses of the link that asks are listed for each probe: the kernel's filter may drop their events.
    addresses: List,
    /// The best of them to ask from.
    from: Option<Address>,
    /// All links have been listed. Events have kept `own` true since.
    links: List,
    /// The links of this host, and their MACs.
    own: Vec<(u32, Mac), MAX_LINKS>,
}

impl Prober {
    /// Handles a new or changed link, by an event or listed.
    pub(super) fn handle_link(&mut self, link: &Link) {
        let Some(mac) = link.mac else { return };
        self.handle_link_gone(link.ifindex);
        // A link beyond the room seems to be another station.
        let _ = self.own.push((link.ifindex, mac));
    }

    /// Handles the deletion of a link.
    pub(super) fn handle_link_gone(&mut self, gone: u32) {
        self.own.retain(|(ifindex, _)| *ifindex != gone);
    }

    /// Handles a loss of events.
    pub(super) fn handle_loss(&mut self) {
        self.own.clear();
        self.links = List::Missing;
    }

    /// Handles an entry of the list of addresses.
    pub(super) fn handle_address(&mut self, address: &Address, vip: &Vip) {
        if Some(address.ifindex) == vip.own_link()
            && is_usable(address, vip.ip())
            && vip.place().is_some_and(|vip| is_apart(address, vip))
            && self.from.is_none_or(|best| rank(address) < rank(&best))
        {
            self.from = Some(*address);
        }
    }

    /// Handles the end of a list.
    pub(super) fn handle_list_end(&mut self, question: Question) {
        let list = if question == Question::Links { &mut self.links } else { &mut self.addresses };
        if let List::Requested(_) = list {
            *list = List::Known;
        }
    }

    /// Returns what to list before the next probe, which may be due, if anything.
    pub(super) fn next_list(&mut self, vip: &Vip, is_due: bool, now: Instant) -> Option<Question> {
        if let List::Missing = self.links {
            self.links = List::Requested(now);
            return Some(Question::Links);
        }
        let only = vip.own_link().filter(|_| is_due && matches!(self.addresses, List::Missing))?;
        (self.addresses, self.from) = (List::Requested(now), None);
        Some(Question::Addresses { only: Some(only) })
    }

    /// Returns when to probe although a list is missing. None: at any time.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let requested = |list| if let List::Requested(at) = list { Some(at) } else { None };
        [self.addresses, self.links].into_iter().filter_map(requested).max().map(|at| at + PATIENCE)
    }

    /// Returns whether the MACs of this host's links are known, or have been waited for.
    pub(super) fn has_links(&self, now: Instant) -> bool {
        match self.links {
            List::Missing => false,
            List::Requested(at) => now >= at + PATIENCE,
            List::Known => true,
        }
    }

    /// Forgets what is listed for one probe alone. A list that has not come may be requested again.
    pub(super) fn forget_addresses(&mut self) {
        self.addresses = List::Missing;
        if let List::Requested(_) = self.links {
            self.links = List::Missing;
        }
    }

    /// Returns the probe to send: the `ordinary` one comes from an address even in IPv4. None: without an address a
    /// probe would harm others, unless it `may_harm`.
    pub(super) fn probe(&self, vip: &Vip, ordinary: bool, may_harm: bool) -> Option<Probe> {
        let (ifindex, mac) = (vip.ifindex()?, vip.mac()?);
        let is_own = |mac| virtual_router_id(mac).is_none();
        let below = vip.own_link().filter(|below| *below != ifindex);
        let asks = |(link, mac): &&(u32, Mac)| Some(*link) == below && is_own(*mac);
        let (ifindex, own_mac) = *self.own.iter().find(asks).unwrap_or(&(ifindex, mac));
        let is_own = is_own(own_mac);
        let unspecified: IpAddr = match vip.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // A switch would learn from a virtual MAC, and hosts its address.
        let from = self.from.map(|own| own.cidr.address());
        let from = from.filter(|from| is_own && (ordinary || from.is_ipv6()));
        let from = from.unwrap_or(unspecified);
        let answer_to = if is_own { own_mac } else { [0xff; 6] };
        let is_harmless = !from.is_unspecified() || from.is_ipv4() && is_own;
        (is_harmless || may_harm).then_some(Probe { ifindex, mac: own_mac, from, answer_to })
    }

    /// Returns whether a MAC is that of a link of this host.
    pub(super) fn is_own(&self, mac: Mac) -> bool {
        self.own.iter().any(|(_, own)| *own == mac)
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

/// Returns whether keepalived did not add this address with the VIP. Which came first the times do not show, as they begin
/// anew.
fn is_apart(own: &Address, vip: &Place) -> bool {
    vip.created.abs_diff(own.created) >= VIPS_WITHIN
}

/// Returns the order of preference: link-local addresses first, then the smallest stamp.
fn rank(address: &Address) -> (bool, u32) {
    let is_local = matches!(address.cidr.address(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!is_local, address.created)
}
