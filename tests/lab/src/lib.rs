//! What the tests and the example need of the world: namespaces of their own, links and addresses
//! in them, an agent with every kind of manners, and keepwatch itself as a running program.
//!
//! Everything here is the real thing. What goes wrong ends the test by a panic that says what was waited for.

#![expect(clippy::new_without_default, reason = "each is made, and none stands for nothing")]

pub mod agent;
pub mod capture;
pub mod daemon;
pub mod ending;
pub mod files;
#[cfg(feature = "defmt")]
pub mod frames;
pub mod hardening;
pub mod heard;
#[cfg(target_arch = "x86_64")]
pub mod inject;
pub mod log;
pub mod memory;
pub mod namespace;
pub mod old_kernel;
pub mod rtnl;
#[cfg(target_arch = "x86_64")]
pub mod traced;
pub mod trial;
pub mod users;

use std::time::Duration;

pub use inventory;
pub use macro_rules_attribute::apply;

/// How long a test waits for what ought to happen, which takes at most some seconds: the rest is for a machine that is
/// busy with other tests. Only a daemon that hangs costs a test so much, as a wait ends with the daemon.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The newest Neutron's reply, byte for byte: LF, a stray quote, no blank line.
pub const NEWEST_REPLY: &[u8] = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\n\
    Connection: close\nContent-Location': http://127.0.0.1/";
