//! What the core has been told of the links beside the watched one, and must not forget.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use keepwatch::monitor::{
    Action, AddressKey, Announcement, Dump, DumpResult, Duration, FrameKind, Input, Instant,
};
use keepwatch::wire::rtnl::{Address, Body, Mac, Message};
use netlink_packet_route::address::AddressFlags;

use super::kernel::{Meaning, UP};

/// An address on a link, with the length of its prefix.
pub type Configured = (IpAddr, u8);

#[derive(Debug, Default)]
pub struct Told {
    links: BTreeMap<u32, Known>,
    addresses: BTreeMap<(u32, Configured), AddressFlags>,
    /// What the dump of all links has shown so far.
    shown_links: Option<BTreeSet<u32>>,
    /// What the dump of this interface has.
    shown: Option<(u32, BTreeSet<Configured>)>,
    /// That dump has gaps: what it shows is there, but what it does not show need not be gone.
    has_gaps: bool,
    /// When the core gives up the dump.
    dump_deadline: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    mac: Mac,
    up: bool,
    forwards: bool,
}

impl Told {
    /// Notes what the core learns from this.
    pub fn tell(&mut self, input: &Input, meaning: Meaning, now: Instant) {
        match input {
            Input::Netlink(message) => self.tell_message(message, meaning),
            Input::RequestFailed(_) => self.forget_dump(),
            Input::MalformedMessage => self.has_gaps = true,
            _ => {}
        }
        if self.dump_deadline.is_none_or(|by| now >= by) && *input == Input::QueueEmpty {
            self.forget_dump();
        }
    }

    fn tell_message(&mut self, Message { body, .. }: &Message, meaning: Meaning) {
        match (meaning, body) {
            // A dump is asked for one interface; what it has of others, or of what an event has shown, need not be heeded.
            (Meaning::Listed, Body::NewAddress(address))
                if self.shown.as_ref().is_none_or(|(listed, shown)| {
                    *listed != address.ifindex || shown.contains(&key(address))
                }) => {}
            (Meaning::Event | Meaning::Listed, body) => {
                // The core heeds nothing more of a dump that may list what is gone, so it shows less than there is.
                let listed = self.shown.as_ref().map(|(listed, _)| *listed);
                self.has_gaps |=
                    matches!(body, Body::DelAddress(address) if Some(address.ifindex) == listed);
                self.take(body);
            }
            (Meaning::Ended(DumpResult::Complete), _) if !self.has_gaps => self.sweep(),
            // What has gaps tells nothing of what it did not show.
            (Meaning::Ended(_), _) => self.forget_dump(),
            (Meaning::Nothing, _) => {}
        }
    }

    /// Notes what the core asks for.
    pub fn asked(&mut self, action: &Action, now: Instant) {
        let Action::RequestDump { dump, .. } = action else { return };
        (self.shown, self.shown_links) = match dump {
            Dump::Links => (None, Some(BTreeSet::new())),
            Dump::Interface | Dump::Everywhere => (None, None),
            Dump::Addresses(ifindex) | Dump::Others(ifindex) => {
                (Some((*ifindex, BTreeSet::new())), None)
            }
        };
        self.has_gaps = false;
        self.dump_deadline = Some(now + Duration::from_secs(5));
    }

    /// No frame is about what the core could know to be otherwise.
    pub fn check(&self, announcement: &Announcement, watched: Mac) {
        let Announcement { address, mac, kind, .. } = *announcement;
        let ifindex = address.ifindex;
        let link = self.links.get(&ifindex).expect("a frame for a link that is gone");
        assert!(link.up && mac == link.mac, "link {ifindex} is down, or its MAC is another");
        assert!(is_ours(mac, watched), "the virtual MAC of another VRRP instance");
        let ip: IpAddr = match kind {
            FrameKind::ArpRequest(ip) | FrameKind::ArpReply(ip) => ip.into(),
            FrameKind::Advertisement { ip, router } => {
                assert_eq!(router, link.forwards, "the router flag");
                ip.into()
            }
        };
        assert_eq!(ip, address.ip, "the frame is about another address");
        let flags = self.addresses.get(&(ifindex, configured(address)));
        let flags = flags.unwrap_or_else(|| panic!("a frame for {ip}, which is gone"));
        assert_eq!(*flags, AddressFlags::Permanent, "detection is not over, or has failed");
    }

    /// What a complete dump has not shown is gone.
    fn sweep(&mut self) {
        if let Some(shown) = self.shown_links.take() {
            self.links.retain(|ifindex, _| shown.contains(ifindex));
        }
        if let Some((listed, shown)) = self.shown.take() {
            self.addresses.retain(|(ifindex, at), _| *ifindex != listed || shown.contains(at));
        }
    }

    fn forget_dump(&mut self) {
        (self.shown, self.shown_links) = (None, None);
    }

    fn take(&mut self, body: &Body) {
        match body {
            Body::NewLink(link) => {
                let known = self.links.get(&link.ifindex);
                // Of a link that is not known yet a wireless event does not tell enough.
                let Some(mac) = link.mac.or(known.map(|known| known.mac)) else { return };
                let known = known.is_some_and(|known| known.forwards);
                let forwards = link.ipv6_forwarding.unwrap_or(known);
                let up = link.flags.contains(UP);
                self.links.insert(link.ifindex, Known { mac, up, forwards });
                if let Some(shown) = &mut self.shown_links {
                    shown.insert(link.ifindex);
                }
            }
            Body::DelLink(link) => {
                self.links.remove(&link.ifindex);
            }
            Body::NewAddress(address) => {
                let (ifindex, address) = (address.ifindex, address);
                self.addresses.insert((ifindex, key(address)), address.flags);
                if let Some((listed, shown)) = &mut self.shown
                    && *listed == ifindex
                {
                    shown.insert(key(address));
                }
            }
            Body::DelAddress(address) => {
                self.addresses.remove(&(address.ifindex, key(address)));
            }
            Body::Ipv6Forwarding { ifindex, on } => {
                if let Some(link) = self.links.get_mut(ifindex) {
                    link.forwards = *on;
                }
            }
            _ => {}
        }
    }
}

/// It is no virtual MAC, or that of the VRRP instance that the watched interface belongs to, if any.
pub fn is_ours(mac: Mac, watched: Mac) -> bool {
    !is_virtual(mac) || !is_virtual(watched) || mac[5] == watched[5]
}

/// It belongs to a VRRP instance.
pub fn is_virtual(mac: Mac) -> bool {
    mac[..4] == [0, 0, 0x5e, 0]
}

pub fn configured(address: AddressKey) -> Configured {
    (address.ip, address.ipv4.map_or(64, |(prefix_len, _)| prefix_len))
}

fn key(address: &Address) -> Configured {
    (address.cidr.address(), address.cidr.prefix_len())
}
