//! The daemon: how it starts, and the loop that it then runs.

mod confine;
mod event_loop;
mod helpers;
mod setup;

pub use event_loop::Daemon;
