//! `src/monitor` on top of `src/wire` and nothing else: see `../wire/lib.rs`.

#![cfg_attr(not(mutants), no_std)]
#![forbid(unsafe_code)]

pub use no_std_wire::{errno, wire};

#[path = "../../../src/monitor/mod.rs"]
pub mod monitor;
