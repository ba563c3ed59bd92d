//! The watched interface, and the VIP on it.

use core::net::IpAddr;

use heapless::Vec;
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::Cause;
use crate::wire::rtnl::{Address, Mac};

/// The watched interface.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) ifindex: u32,
    /// None: unknown, or no Ethernet.
    pub(super) mac: Option<Mac>,
    /// The index of the link below it.
    pub(super) parent: Option<u32>,
    pub(super) flags: LinkFlags,
    /// The answer to the request for the interface, or a later event, has shown it.
    pub(super) seen: bool,
    /// All addresses have been listed, and `instances` is complete.
    pub(super) is_listed: bool,
    pub(super) listing: Listing,
    /// The interface has come up: duplicate address detection may have started again, until a dump shows otherwise.
    pub(super) detection_restarts: bool,
    /// The configurations of the VIP here: usually one.
    pub(super) instances: Vec<Instance, 8>,
}

/// The running dump of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listing {
    /// There is none, or it began before the interface was found.
    #[default]
    None,
    Current,
    /// The VIP was removed since: the dump may still list it.
    Outdated,
}

/// One configuration of the VIP on the interface. In IPv4 several can differ in the peer. In IPv6 an interface has each
/// address once, and its peer may change in place.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: IpAddr,
    /// The running dump, or an event since its start, has shown it.
    pub(super) seen: bool,
    pub(super) detection: Detection,
}

/// Duplicate address detection (RFC 4862 section 5.4) of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// No program can bind to it yet (`ipv6_chk_addr_and_flags` in `net/ipv6/addrconf.c`).
    Running,
    Passed,
    /// The kernel does not use it: another station has it.
    Failed,
}

impl Detection {
    pub(super) fn of(address: &Address) -> Self {
        let has = |flag| address.flags.contains(flag);
        if has(AddressFlags::Dadfailed) {
            Self::Failed
        } else if has(AddressFlags::Tentative) && !has(AddressFlags::Optimistic) {
            Self::Running
        } else {
            Self::Passed
        }
    }
}

impl Interface {
    pub(super) fn has_vip(&self) -> bool {
        self.instances.iter().any(|instance| instance.detection != Detection::Failed)
    }

    /// Handles that the interface has come up. Then the kernel starts the detection of IPv6 addresses again that it has kept
    /// (`keep_addr_on_down`), and only its end has an event (`addrconf_permanent_addr` in `net/ipv6/addrconf.c`).
    pub(super) fn restart_detection(&mut self) {
        let passed = |i: &&mut Instance| i.id.is_ipv6() && i.detection == Detection::Passed;
        for instance in self.instances.iter_mut().filter(passed) {
            instance.detection = Detection::Running;
            self.detection_restarts = true;
        }
    }

    /// Returns why no address on the interface can be used, if it is down.
    pub(super) fn down_cause(&self) -> Option<Cause> {
        if self.flags.contains(LinkFlags::Up | LinkFlags::Running) {
            None
        } else if self.flags.contains(LinkFlags::Up) {
            Some(Cause::CarrierLost)
        } else {
            Some(Cause::InterfaceDown)
        }
    }
}

/// Returns the identifier of an instance: see [`Instance`].
pub(super) fn instance_id(address: &Address) -> IpAddr {
    if address.peer.is_ipv4() { address.peer } else { address.cidr.address() }
}
