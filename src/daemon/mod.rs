//! The running daemon: the loop, and the helper processes as it sees them.

#![warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod event_loop;
mod execute;
mod helpers;
mod sources;

pub use event_loop::Daemon;
pub(crate) use sources::SOURCES;
