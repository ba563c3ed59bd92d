//! The watched interface.

use netlink_packet_route::link::LinkFlags;

use super::Cause;
use crate::wire::rtnl::{Link, Mac};

/// Whether an interface has the watched name.
#[derive(Clone, Debug, Default)]
pub(super) enum Presence {
    #[default]
    Unknown,
    Absent,
    Present(Interface),
}

/// The interface that has the watched name.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) ifindex: u32,
    /// None: unknown, or no Ethernet.
    pub(super) mac: Option<Mac>,
    /// The index of the link below it.
    pub(super) parent: Option<u32>,
    pub(super) flags: LinkFlags,
    /// All its places of the VIP are known.
    pub(super) is_listed: bool,
}

impl Interface {
    /// Returns the interface of a message, whose addresses are unknown.
    pub(super) fn new(link: &Link) -> Self {
        let Link { ifindex, mac, parent, flags, .. } = *link;
        Self { ifindex, mac, parent, flags, is_listed: false }
    }

    /// Updates it by a message. Returns whether it has come up.
    pub(super) fn update(&mut self, link: &Link) -> bool {
        let was_up = self.flags.contains(LinkFlags::Up);
        self.flags = link.flags;
        self.mac = link.mac.or(self.mac).filter(|_| link.ethernet);
        self.parent = link.parent.or(self.parent);
        link.flags.contains(LinkFlags::Up) && !was_up
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
