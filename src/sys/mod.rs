//! The edge to Linux while the loop runs: file descriptors and system calls, no decisions, no allocation.

#![warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub(crate) mod agent;
pub(crate) mod atomic_file;
pub(crate) mod bpf;
pub(crate) mod clock;
mod errno;
pub(crate) mod files;
pub(crate) mod keepalived;
pub(crate) mod log_sink;
pub mod netlink;
pub(crate) mod netns;
pub(crate) mod own_file;
pub(crate) mod packet;
pub(crate) mod pid_file;
pub mod service_manager;
pub mod signals;
pub mod state_file;
pub(crate) mod stderr;
