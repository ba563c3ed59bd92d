//! The link beside the watched one, its addresses, and what goes out there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use keepwatch::core::{Action, Announcement, DumpEnd, Duration, Input, Instant, Kind, Sent};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::kernel::{UP, address, link};

/// Duplicate address detection has found another station with the address.
const FAILED: AddressFlags = AddressFlags::Dadfailed.union(AddressFlags::Tentative);

pub struct Lan {
    /// None: it is not there.
    ifindex: Option<u32>,
    up: bool,
    carrier_changes: u32,
    mac: Mac,
    router: bool,
    addresses: BTreeMap<IpAddr, Entry>,
    told: Told,
    /// What becomes of the next frames.
    pub wire: Sent,
}

struct Entry {
    flags: AddressFlags,
    /// How many have announced it since it could be used, the carrier came back or the MAC changed.
    frames: u32,
}

/// What the core has been told.
struct Told {
    /// For each its MAC, whether it is up, and whether it forwards IPv6.
    links: BTreeMap<u32, (Mac, bool, bool)>,
    addresses: BTreeMap<(u32, IpAddr), AddressFlags>,
    /// What the dump of all links has shown so far.
    shown_links: Option<BTreeSet<u32>>,
    /// What the dump of this interface has.
    shown: Option<(u32, BTreeSet<IpAddr>)>,
    /// When the core gives up the dump.
    dump_deadline: Instant,
}

impl Lan {
    pub fn new(ifindex: u32) -> Self {
        Self {
            ifindex: Some(ifindex),
            up: true,
            carrier_changes: 0,
            mac: [2, 0, 0, 0, 0, 3],
            router: false,
            addresses: BTreeMap::new(),
            told: Told {
                links: BTreeMap::new(),
                addresses: BTreeMap::new(),
                shown_links: None,
                shown: None,
                dump_deadline: Instant::ZERO,
            },
            wire: Sent::Yes,
        }
    }

    /// Adds an address or takes it on to its end; tells the event.
    pub fn change_address(&mut self, how: u8) -> Option<Body> {
        let ifindex = self.ifindex?;
        let n = how % 8;
        let ip: IpAddr = if how & 8 == 0 {
            Ipv4Addr::new(10, 0, 0, n).into()
        } else {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()
        };
        let flags = match self.addresses.get(&ip).map(|entry| entry.flags) {
            None if ip.is_ipv4() => AddressFlags::Permanent,
            None if how & 16 != 0 => AddressFlags::Optimistic | AddressFlags::Tentative,
            None => AddressFlags::Tentative,
            Some(flags) if flags == AddressFlags::Permanent || flags == FAILED => {
                self.addresses.remove(&ip);
                return Some(Body::DelAddress(lan_address(ifindex, ip, flags)));
            }
            Some(_) if how & 32 != 0 => FAILED,
            Some(_) => AddressFlags::Permanent,
        };
        let known = self.addresses.insert(ip, Entry { flags, frames: 0 }).is_some();
        let refreshed = known && how & 64 != 0;
        Some(Body::NewAddress(Address { refreshed, ..lan_address(ifindex, ip, flags) }))
    }

    /// Changes the link; tells the events. `new_index` is for one that is made anew.
    pub fn change_link(&mut self, how: u8, new_index: impl FnOnce() -> u32) -> Vec<Body> {
        let Some(ifindex) = self.ifindex else {
            self.ifindex = Some(new_index());
            return self.link().into_iter().collect();
        };
        match how % 8 {
            0..4 => {
                self.up = !self.up;
                self.carrier_changes += 1;
            }
            4 | 5 => self.mac[5] ^= 4,
            6 => {
                self.router = !self.router;
                return vec![Body::Ipv6Forwarding { ifindex, on: self.router }];
            }
            _ => {
                let gone = std::mem::take(&mut self.addresses);
                let gone = gone.into_iter().map(|(ip, entry)| (ip, entry.flags));
                let gone =
                    gone.map(|(ip, flags)| Body::DelAddress(lan_address(ifindex, ip, flags)));
                let link = self.link().and_then(|link| match link {
                    Body::NewLink(link) => Some(Body::DelLink(link)),
                    _ => None,
                });
                let events = gone.chain(link).collect();
                self.ifindex = None;
                return events;
            }
        }
        self.addresses.values_mut().for_each(|entry| entry.frames = 0);
        self.link().into_iter().collect()
    }

    /// Its MAC.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Whether the core could know an interface of ours by its MAC.
    pub fn knows(&self, mac: Mac) -> bool {
        self.told.links.values().any(|(known, ..)| *known == mac)
    }

    /// The link, if it is there, for an event or for a dump of all links.
    pub fn link(&self) -> Option<Body> {
        let flags = if self.up { UP } else { LinkFlags::Up };
        Some(Body::NewLink(Link {
            flags,
            mac: Some(self.mac),
            carrier_changes: self.carrier_changes,
            ipv6_forwarding: Some(self.router),
            ..link(self.ifindex?, "lan")
        }))
    }

    /// For a dump of any interface: without strict checking, the addresses of all come.
    pub fn listed(&self) -> impl Iterator<Item = Body> {
        self.addresses.iter().filter_map(|(ip, entry)| {
            Some(Body::NewAddress(lan_address(self.ifindex?, *ip, entry.flags)))
        })
    }

    /// Notes what the core learns from this.
    pub fn tell(&mut self, input: &Input, now: Instant) {
        let told = &mut self.told;
        match input {
            // A dump is asked for one interface; what it has of others need not be heeded.
            Input::Listed(Body::NewAddress(address))
                if told.shown.as_ref().is_none_or(|(listed, _)| *listed != address.ifindex) => {}
            Input::Event(body) | Input::Listed(body) => told.take(body),
            Input::DumpEnded(DumpEnd::Complete) => told.sweep(),
            // What has gaps tells nothing of what it did not show.
            Input::DumpEnded(_) | Input::Unreadable => told.forget_dump(),
            _ => {}
        }
        if now >= told.dump_deadline && *input == Input::QueueEmpty {
            told.forget_dump();
        }
    }

    /// Notes what the core asks for.
    pub fn asked(&mut self, action: &Action, now: Instant) {
        (self.told.shown, self.told.shown_links) = match action {
            Action::DumpLinks => (None, Some(BTreeSet::new())),
            Action::RequestInterface => (None, None),
            Action::DumpAddresses(ifindex) => (Some((*ifindex, BTreeSet::new())), None),
            _ => return,
        };
        self.told.dump_deadline = now + Duration::from_secs(5);
    }

    pub fn announce(&mut self, announcement: &Announcement) -> Sent {
        let Announcement { ifindex, mac, kind } = *announcement;
        let link = self.told.links.get(&ifindex).copied();
        let (present_mac, up, forwards) = link.expect("a frame for a link that is gone");
        assert!(up && mac == present_mac, "link {ifindex} is down, or its MAC is another");
        let ip: IpAddr = match kind {
            Kind::ArpRequest(ip) | Kind::ArpReply(ip) => ip.into(),
            Kind::Advertisement { ip, router } => {
                assert_eq!(router, forwards, "the router flag");
                ip.into()
            }
        };
        let flags = self.told.addresses.get(&(ifindex, ip));
        let flags = flags.unwrap_or_else(|| panic!("a frame for {ip}, which is gone"));
        assert_eq!(*flags, AddressFlags::Permanent, "detection is not over, or has failed");
        // A frame that will not go out is not tried again.
        if matches!(self.wire, Sent::Yes | Sent::Failed)
            && let Some(entry) = self.addresses.get_mut(&ip)
        {
            entry.frames += 1;
        }
        self.wire
    }

    /// Every address that can be used has had its three rounds.
    pub fn is_announced(&self) {
        for (ip, Entry { flags, frames }) in &self.addresses {
            let usable = self.up && *flags == AddressFlags::Permanent;
            let expected = if ip.is_ipv4() { 6 } else { 3 };
            assert!(!usable || *frames >= expected, "{ip} was announced {frames} times");
        }
    }
}

impl Told {
    /// What a complete dump has not shown is gone.
    fn sweep(&mut self) {
        if let Some(shown) = self.shown_links.take() {
            self.links.retain(|ifindex, _| shown.contains(ifindex));
        }
        if let Some((listed, shown)) = self.shown.take() {
            self.addresses.retain(|(ifindex, ip), _| *ifindex != listed || shown.contains(ip));
        }
    }

    fn forget_dump(&mut self) {
        (self.shown, self.shown_links) = (None, None);
    }

    fn take(&mut self, body: &Body) {
        match body {
            Body::NewLink(link) => {
                let mac = link.mac.expect("an Ethernet");
                let known = self.links.get(&link.ifindex).is_some_and(|known| known.2);
                let forwards = link.ipv6_forwarding.unwrap_or(known);
                self.links.insert(link.ifindex, (mac, link.flags.contains(UP), forwards));
                if let Some(shown) = &mut self.shown_links {
                    shown.insert(link.ifindex);
                }
            }
            Body::DelLink(link) => {
                self.links.remove(&link.ifindex);
            }
            Body::NewAddress(address) => {
                let (ifindex, ip) = (address.ifindex, address.cidr.address());
                self.addresses.insert((ifindex, ip), address.flags);
                if let Some((listed, shown)) = &mut self.shown
                    && *listed == ifindex
                {
                    shown.insert(ip);
                }
            }
            Body::DelAddress(address) => {
                self.addresses.remove(&(address.ifindex, address.cidr.address()));
            }
            Body::Ipv6Forwarding { ifindex, on } => {
                if let Some(link) = self.links.get_mut(ifindex) {
                    link.2 = *on;
                }
            }
            _ => {}
        }
    }
}

fn lan_address(ifindex: u32, ip: IpAddr, flags: AddressFlags) -> Address {
    let prefix_len = if ip.is_ipv4() { 24 } else { 64 };
    address(ifindex, Cidr::new(ip, prefix_len).expect("an address"), flags)
}
