//! The real program in real network namespaces. Numbers of promises are those of docs/promises.md.
//!
//! Every test has a network namespace of its own. Without root they live in a user namespace.

#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and may print measurements"
)]

#[macro_use]
extern crate lab;

mod addresses;
mod agent;
mod announce;
mod asking;
#[cfg(target_arch = "x86_64")]
mod attacks;
mod claims;
mod conntrackd;
#[cfg(target_arch = "x86_64")]
mod faults;
mod filter;
mod floods;
mod helpers;
mod hook;
mod hook_user;
mod interface;
mod keepalived;
mod landlock;
mod list;
mod lives;
mod log;
mod memory;
mod metrics;
mod misplaced;
#[cfg(target_arch = "x86_64")]
mod moments;
mod namespace;
mod options;
mod overrun;
mod own_files;
mod privileges;
mod programs;
mod scripted;
mod scripts;
mod service_manager;
mod signals;
mod stalls;
mod start;
mod starter;
mod state_file;
mod stdio;
mod strangers;
mod syslog;
mod troubles;
mod trust;
mod verdict;
mod world;

fn main() {
    lab::trial::run()
}
