//! The thin edge to Linux: every file descriptor, every system call, no decision.

pub mod agent;
pub mod clock;
pub mod conntrackd;
pub mod constants;
pub mod file;
pub mod filter;
#[cfg(feature = "defmt")]
mod frames;
pub mod interface;
mod jail;
pub mod landlock;
mod last_words;
pub mod log_file;
pub mod namespace;
pub mod netlink;
pub mod own_file;
pub mod packet;
pub mod pid_file;
pub mod poll;
pub mod privileges;
pub mod process;
mod program;
pub mod seccomp;
pub mod signals;
pub mod state_file;
pub mod stderr;
pub mod trust;
pub mod users;
