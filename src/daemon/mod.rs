//! The daemon: how it starts, and the loop that it then runs.

mod confine;
mod event_loop;
mod helpers;
mod setup;
mod warnings;

pub use event_loop::Daemon;
pub use setup::StartError;
pub(crate) use setup::named;
