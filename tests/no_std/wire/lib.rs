//! `src/wire` by itself, where `use std`, `use nix` or a path into another layer does not compile.
//!
//! As a dev-dependency of keepwatch, it is built by every `cargo test` and `cargo clippy --all-targets`. It checks only
//! our own code: `netlink-packet-route` itself needs std.

// cargo-mutants writes `std::` and `Vec` into the source.
#![cfg_attr(not(mutants), no_std)]
#![forbid(unsafe_code)]

#[path = "../../../src/errno.rs"]
pub mod errno;
#[path = "../../../src/wire/mod.rs"]
pub mod wire;
