//! `src/wire` by itself, where `use std`, `use nix` or a path into another layer does not compile.
//!
//! It is a dev-dependency of keepwatch, so every `cargo test` and `cargo clippy --all-targets` builds it.
//! This is about our own code: `netlink-packet-route` itself needs std.

// cargo-mutants writes `std::` and `Vec` into the source.
#![cfg_attr(not(mutants), no_std)]
#![forbid(unsafe_code)]

#[path = "../../../src/errno.rs"]
pub mod errno;
#[path = "../../../src/wire/mod.rs"]
pub mod wire;
