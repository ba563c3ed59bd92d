//! Questions to the kernel, and how their answers end.

use crate::errno::Errno;

/// A question about links or addresses. The kernel answers at once, with entries and an [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The link with the watched name, or with that as an alternative name.
    Interface,
    /// The link with this index.
    Link(u32),
    /// The addresses of the interface with this index, or of all.
    Addresses {
        /// The index. Kernels before 4.20 list all addresses.
        only: Option<u32>,
    },
    /// All links.
    Links,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The entries are all that there was.
    Complete,
    /// Entries may be missing: the kernel's tables changed meanwhile, or may have, as one interface was listed in
    /// several parts.
    Interrupted,
    /// The question could not be sent, or the kernel refused it.
    Failed(Errno),
}
