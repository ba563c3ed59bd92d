//! The formats of `src/wire`, by examples.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod arp;
mod cidr;
mod http;
mod ifname;
mod ndisc;
mod rtnl;
