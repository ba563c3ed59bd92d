//! What this router is, and for which links that counts.

use super::links::Link;
use crate::monitor::split_brain::virtual_router;
use crate::wire::rtnl::Mac;

/// What this router is, by what keepalived has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) active: bool,
    /// The VRRP instance that this is about, if it has a virtual MAC.
    instance: Option<u8>,
}

impl Role {
    /// By whether the state is active, and the MAC of the watched interface.
    pub(super) fn new(active: bool, watched: Option<Mac>) -> Self {
        Self { active, instance: watched.and_then(virtual_router) }
    }

    /// A virtual MAC belongs to one VRRP instance, and what another one is nobody here knows.
    pub(super) fn covers(self, link: &Link) -> bool {
        match (self.instance, virtual_router(link.mac)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        }
    }
}
