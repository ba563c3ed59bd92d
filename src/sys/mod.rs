//! The thin edge to Linux: every file descriptor, every system call, no decision.

pub mod agent;
pub mod clock;
pub mod filter;
pub mod log_file;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod pid_file;
pub mod process;
pub mod signals;
pub mod state_file;
