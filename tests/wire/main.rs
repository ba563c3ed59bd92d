//! The formats of `src/wire`, by examples.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arp;
mod http;
mod ifname;
mod ndisc;
mod rtnl;
