//! Feature `defmt`: the real program, stripped as on a device, and what its log says when it is
//! decoded with the symbols that were kept. Beside it runs the program that logs text.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and tells what it measured"
)]

mod allocations;
mod damage;
mod figures;
mod lines;
mod linkers;
mod programs;
#[path = "../system/world.rs"]
#[expect(dead_code, reason = "not every kind of test needs all of it")]
mod world;

use libtest_mimic::{Arguments, Trial};

/// A list of test functions as trials named after them, each in a network namespace of its own.
macro_rules! trials {
    ($($test:ident),+ $(,)?) => {
        vec![$(crate::trial(concat!(module_path!(), "::", stringify!($test)), $test)),+]
    };
}
use trials;

fn trial(name: &str, test: fn()) -> Trial {
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    Trial::test(name, move || {
        lab::namespace::Netns::new().enter();
        test();
        Ok(())
    })
}

fn main() {
    let arguments = Arguments::from_args();
    // Before there is a namespace: cargo may want the network.
    programs::provide();
    lab::namespace::enter().expect("namespaces: wants root or unprivileged user namespaces");
    let trials = [
        allocations::trials(),
        damage::trials(),
        figures::trials(),
        lines::trials(),
        linkers::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}
