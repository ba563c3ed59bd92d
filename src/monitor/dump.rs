//! The kinds of dumps, their results and their messages.

use crate::errno::Errno;

/// A request to the kernel to list something, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// The link with the watched name, or with that as an alternative name.
    ///
    /// To the kernel this is no dump: it sends one answer under the RTNL lock (`rtnl_getlink` in
    /// `net/core/rtnetlink.c`), in order with the events.
    Interface,
    /// All addresses.
    Addresses,
    /// All links.
    Links,
}

impl Dump {
    pub(super) const ALL: [Self; 3] = [Self::Interface, Self::Addresses, Self::Links];
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpResult {
    /// Everything was listed.
    Complete,
    /// The kernel's tables changed meanwhile (`NLM_F_DUMP_INTR`): the dump has gaps.
    Interrupted,
    /// A malformed message may have been part of the dump.
    Malformed,
    /// The request could not be sent, or the kernel refused it.
    Failed(Errno),
    /// The end of the dump did not come in time.
    TimedOut,
}

/// The role of a netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageClass {
    /// Reports a change.
    Event,
    /// Is an entry of the running dump.
    Listed(Dump),
    /// Ends the running dump.
    DumpEnded(DumpResult),
    /// Belongs to another socket, or to a dump that timed out.
    Ignored,
}
