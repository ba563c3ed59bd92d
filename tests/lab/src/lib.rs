//! The environment of tests and example: namespaces with links and addresses, an agent that behaves well or badly, and
//! a running keepwatch.
//!
//! All of it is real. Errors and timeouts panic, with the event that a test has waited for.

#![expect(clippy::new_without_default, reason = "`new` creates resources")]

pub mod agent;
pub mod capture;
pub mod daemon;
pub mod ending;
#[cfg(target_arch = "x86_64")]
pub mod faults;
pub mod files;
#[cfg(feature = "defmt")]
pub mod frames;
pub mod hardening;
#[cfg(target_arch = "x86_64")]
pub mod inject;
pub mod log;
pub mod memory;
pub mod namespace;
pub mod old_kernel;
pub mod received;
pub mod rtnl;
#[cfg(target_arch = "x86_64")]
pub mod traced;
pub mod trial;
pub mod users;

use std::time::Duration;

pub use inventory;
pub use macro_rules_attribute::apply;

/// How long a test waits for an event, which takes at most some seconds unless other tests keep the machine busy. A
/// wait also ends with the daemon, so only a hanging daemon costs a test so much.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The newest Neutron's reply, byte for byte: LF, a stray quote, no blank line.
pub const NEWEST_REPLY: &[u8] = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\n\
    Connection: close\nContent-Location': http://127.0.0.1/";
