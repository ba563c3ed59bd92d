//! The real program in real network namespaces: one file per promise.
//!
//! Every test has a network namespace of its own. Without root they live in a user namespace.

#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and may tell what it measured"
)]

mod addresses;
mod agent;
mod announce;
mod claims;
mod conntrackd;
mod filter;
mod interface;
mod namespace;
mod options;
mod overrun;
mod privileges;
mod signals;
mod start;
mod state_file;
mod stdio;
mod trust;
mod world;

use libtest_mimic::{Arguments, Trial};

/// A list of test functions as trials named after them, each in a network namespace of its own.
macro_rules! trials {
    ($($test:ident),+ $(,)?) => {
        vec![$(crate::trial(concat!(module_path!(), "::", stringify!($test)), $test)),+]
    };
}
use trials;

/// The same for tests with more than one user, of which a user namespace has but one. There they are
/// listed as ignored.
macro_rules! trials_with_other_users {
    ($($test:ident),+ $(,)?) => {
        crate::trials![$($test),+]
            .into_iter()
            .map(|trial| trial.with_ignored_flag(!lab::users::has_others()))
    };
}
use trials_with_other_users;

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
    lab::namespace::enter().expect("namespaces: wants root or unprivileged user namespaces");
    let trials = [
        // It has the longest, beside which the others run.
        conntrackd::trials(),
        addresses::trials(),
        agent::trials(),
        announce::trials(),
        claims::trials(),
        filter::trials(),
        interface::trials(),
        namespace::trials(),
        options::trials(),
        overrun::trials(),
        privileges::trials(),
        signals::trials(),
        start::trials(),
        state_file::trials(),
        stdio::trials(),
        trust::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}
