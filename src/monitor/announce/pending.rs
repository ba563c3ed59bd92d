//! The addresses that are to be announced.

use core::num::NonZeroU8;

use heapless::Vec;

use super::frame::{AddressKey, Announcement, FrameKind, Local};
use super::links::{Link, Links};
use crate::monitor::Instant;

/// An address that is to be announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnnouncement {
    // Not together as an `AddressKey`, whose padding would make it a quarter larger.
    pub(super) ifindex: u32,
    pub(super) local: Local,
    pub(super) progress: Progress,
    /// The next frame goes out then, if any does.
    pub(super) due: Instant,
    /// The dump under way, or an event since it began, has shown this address.
    pub(super) seen: bool,
}

impl PendingAnnouncement {
    pub(super) fn key(&self) -> AddressKey {
        AddressKey { ifindex: self.ifindex, local: self.local }
    }

    /// The frame that is next, if any is.
    pub(super) fn frame(&self, link: &Link) -> Option<Announcement> {
        let Progress::Announcing { replying, .. } = self.progress else { return None };
        let kind = match self.local {
            Local::V4 { ip, .. } if replying => FrameKind::ArpReply(ip),
            Local::V4 { ip, .. } => FrameKind::ArpRequest(ip),
            Local::V6(ip) => FrameKind::Advertisement { ip, router: link.router },
        };
        Some(Announcement { address: self.key(), mac: link.mac, kind })
    }
}

/// How far the announcing of an address has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Duplicate address detection has yet to end (RFC 4862 section 5.4).
    Tentative,
    /// It has yet to begin: this router is backup, or the link has another VRRP instance's virtual MAC.
    Waiting,
    /// So many rounds are to come. `replying`: the ARP request of the first of them is out, its reply is next.
    Announcing { rounds: NonZeroU8, replying: bool },
}

/// The most addresses that are announced at the same time.
const MAX_ADDRESSES: usize = 4096;

/// The memory of the announcer. It is large, and most of it is never touched.
#[derive(Debug)]
pub struct Tables {
    pub(super) links: Links,
    pub(super) entries: Vec<PendingAnnouncement, MAX_ADDRESSES>,
}

impl Tables {
    /// Empty ones.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: Links::new(), entries: Vec::new() }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

// The table has room for thousands.
const _: () = assert!(size_of::<PendingAnnouncement>() <= 32);

impl Progress {
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Self::Announcing { .. })
    }
}
