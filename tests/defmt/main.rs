//! Feature `defmt`: the log of the real program, stripped as on a device, is decoded by the symbols. It must have the
//! lines of the program that logs text.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[macro_use]
extern crate lab;

mod damage;
mod lines;
mod linkers;
mod programs;
#[path = "../system/world.rs"]
#[expect(dead_code, reason = "these tests need only a part of it")]
mod world;

fn main() {
    // Before the namespace, as cargo may need the network.
    programs::provide();
    lab::trial::run()
}
