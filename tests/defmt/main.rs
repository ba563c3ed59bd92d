//! Feature `defmt`: the real program, stripped as on a device, and what its log says when it is
//! decoded with the symbols that were kept. Beside it runs the program that logs text.

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
#[expect(dead_code, reason = "not every kind of test needs all of it")]
mod world;

fn main() {
    // Before there is a namespace: cargo may want the network.
    programs::provide();
    lab::trial::run()
}
