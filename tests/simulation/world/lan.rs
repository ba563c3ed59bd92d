//! A link beside the watched one, its addresses, and the frames sent there.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use keepwatch::errno::Errno;
use keepwatch::monitor::{AddressKey, Announcement, FrameKind};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::kernel::{UP, VIRTUAL_MAC, address, link};

/// Flags of an address that another station has, too.
const FAILED: AddressFlags = AddressFlags::Dadfailed.union(AddressFlags::Tentative);
/// The virtual MAC of another VRRP instance than the watched one.
const OTHER_INSTANCE: Mac = [0, 0, 0x5e, 0, 2, VIRTUAL_MAC[5] + 1];

/// An address with its prefix length.
pub type Configured = (IpAddr, u8);

#[derive(Debug)]
pub struct Lan {
    /// None while it does not exist.
    ifindex: Option<u32>,
    up: bool,
    carrier_changes: u32,
    pub mac: Mac,
    router: bool,
    addresses: BTreeMap<Configured, Entry>,
    /// The result of sending frames.
    pub egress: Result<(), Errno>,
}

/// Adds an address, ends its duplicate address detection, or removes it, whichever comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressChange {
    pub address: Configured,
    pub optimistic: bool,
    /// Duplicate address detection fails.
    pub fails: bool,
    pub refreshed: bool,
}

impl AddressChange {
    pub fn of(address: Configured) -> Self {
        Self { address, optimistic: false, fails: false, refreshed: false }
    }
}

/// A change of a link, which is created if it does not exist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkChange {
    Carrier,
    Mac,
    /// The next of: the virtual MAC of a VRRP instance, that of another instance, an ordinary MAC.
    VirtualMac,
    Forwarding,
    Delete,
}

#[derive(Debug)]
struct Entry {
    flags: AddressFlags,
    /// The number of frames since the router became active, it became usable, the carrier returned or the MAC changed.
    frames: u32,
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
            egress: Ok(()),
        }
    }

    /// Adds an address before the start of the core.
    pub fn with_old_address(mut self) -> Self {
        let entry = Entry { flags: AddressFlags::Permanent, frames: 0 };
        self.addresses.insert((Ipv4Addr::new(10, 0, 0, 7).into(), 24), entry);
        self
    }

    pub fn is(&self, ifindex: u32) -> bool {
        self.ifindex == Some(ifindex)
    }

    /// Whether it exists, with this MAC.
    pub fn has(&self, mac: Mac) -> bool {
        self.ifindex.is_some() && self.mac == mac
    }

    /// Changes an address. Returns the event.
    pub fn change_address(&mut self, change: AddressChange) -> Option<Body> {
        let ifindex = self.ifindex?;
        let at = change.address;
        let is_ipv4 = at.0.is_ipv4();
        let flags = match self.addresses.get(&at).map(|entry| entry.flags) {
            None if is_ipv4 => AddressFlags::Permanent,
            None if change.optimistic => AddressFlags::Optimistic | AddressFlags::Tentative,
            None => AddressFlags::Tentative,
            Some(flags) if flags == AddressFlags::Permanent || flags == FAILED => {
                self.addresses.remove(&at);
                return Some(Body::DelAddress(lan_address(ifindex, at, flags)));
            }
            Some(_) if change.fails => FAILED,
            Some(_) => AddressFlags::Permanent,
        };
        let entry = Entry { flags, frames: 0 };
        let known = self.addresses.insert(at, entry).is_some();
        let refreshed = known && change.refreshed;
        Some(Body::NewAddress(Address { refreshed, ..lan_address(ifindex, at, flags) }))
    }

    /// Changes the link. Returns the events. A new link gets its index from `new_index`.
    pub fn change_link(
        &mut self,
        change: LinkChange,
        new_index: impl FnOnce() -> u32,
    ) -> Vec<Body> {
        let Some(ifindex) = self.ifindex else {
            self.ifindex = Some(new_index());
            return self.link().into_iter().collect();
        };
        match change {
            LinkChange::Carrier => {
                self.up = !self.up;
                self.carrier_changes += 1;
            }
            LinkChange::VirtualMac => {
                self.mac = match self.mac {
                    VIRTUAL_MAC => OTHER_INSTANCE,
                    OTHER_INSTANCE => [2, 0, 0, 0, 0, 3],
                    _ => VIRTUAL_MAC,
                };
            }
            LinkChange::Mac if !is_virtual(self.mac) => self.mac[5] ^= 4,
            LinkChange::Mac => self.mac = [2, 0, 0, 0, 0, 3],
            LinkChange::Forwarding => {
                self.router = !self.router;
                return vec![Body::Ipv6Forwarding { ifindex, on: self.router }];
            }
            LinkChange::Delete => {
                let link = Body::DelLink(link(ifindex, "lan"));
                let gone = std::mem::take(&mut self.addresses).into_iter();
                let gone = gone.map(|(at, entry)| lan_address(ifindex, at, entry.flags));
                self.ifindex = None;
                return gone.map(Body::DelAddress).chain([link]).collect();
            }
        }
        self.announce_anew();
        self.link().into_iter().collect()
    }

    /// Expects new announcements of all addresses.
    pub fn announce_anew(&mut self) {
        self.addresses.values_mut().for_each(|entry| entry.frames = 0);
    }

    /// Returns the link, if it exists, for an event or a dump.
    pub fn link(&self) -> Option<Body> {
        let flags = if self.up { UP } else { LinkFlags::Up };
        Some(Body::NewLink(Link {
            flags,
            mac: Some(self.mac),
            carrier_changes: Some(self.carrier_changes),
            ipv6_forwarding: Some(self.router),
            ..link(self.ifindex?, "lan")
        }))
    }

    /// Returns its addresses for a dump.
    pub fn listed(&self) -> impl Iterator<Item = Body> {
        self.addresses.iter().filter_map(|(at, entry)| {
            Some(Body::NewAddress(lan_address(self.ifindex?, *at, entry.flags)))
        })
    }

    /// Notes a frame that was right when events were last read. Returns the result; failed frames are not retried.
    pub fn note_frame(&mut self, announcement: &Announcement) -> Result<(), Errno> {
        if let Some(entry) = self.addresses.get_mut(&configured(announcement.address)) {
            entry.frames += 1;
        }
        self.egress
    }

    /// Asserts that a frame is right, as all events have been read. Returns its result.
    pub fn send(&mut self, announcement: &Announcement) -> Result<(), Errno> {
        let Announcement { address, mac, kind } = *announcement;
        let (ip, is_router) = match kind {
            FrameKind::ArpRequest(ip) | FrameKind::ArpReply(ip) => (ip.into(), self.router),
            FrameKind::Advertisement { ip, router } => (IpAddr::from(ip), router),
        };
        assert_eq!(ip, address.ip, "p11_frame_is_of_its_address");
        assert!(self.up, "p11_link_is_up");
        assert!(!is_virtual(mac), "p11_no_other_instance");
        assert_eq!(
            (mac, is_router),
            (self.mac, self.router),
            "p11_mac_and_router_flag_are_present"
        );
        let entry = self.addresses.get(&configured(address)).expect("p11_address_is_there");
        assert_eq!(entry.flags, AddressFlags::Permanent, "p11_address_is_usable");
        self.note_frame(announcement)
    }

    /// Asserts that every usable address has had its three rounds.
    pub fn is_announced(&self) {
        if !self.up || is_virtual(self.mac) {
            return;
        }
        for ((ip, prefix_len), Entry { flags, frames }) in &self.addresses {
            let due = *flags == AddressFlags::Permanent;
            assert!(
                !due || *frames >= rounds(*ip),
                "p11_every_address_is_announced: {ip} {prefix_len} {frames}"
            );
        }
    }
}

/// Returns the number of frames in three rounds.
fn rounds(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 6 } else { 3 }
}

fn lan_address(ifindex: u32, (ip, prefix_len): Configured, flags: AddressFlags) -> Address {
    address(ifindex, Cidr::new(ip, prefix_len).expect("an address"), flags)
}

/// Whether a MAC belongs to a VRRP instance. No link here is of the watched one's: that would share its link below.
pub fn is_virtual(mac: Mac) -> bool {
    mac[..4] == [0, 0, 0x5e, 0]
}

fn configured(address: AddressKey) -> Configured {
    (address.ip, address.ipv4.map_or(64, |(prefix_len, _)| prefix_len))
}
