//! The program together with the real programs around it, which have to be installed: `tests/run`
//! does that. A test whose peer is missing fails.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod agent_server;
mod backlog;
mod conntrackd;
mod decoded;
mod keepalived;
mod neutron;
mod node;
mod process_manager;
mod syscalls;
#[path = "../system/world.rs"]
#[expect(dead_code, reason = "not every kind of test needs all of it")]
mod world;

use std::process::Command;

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

/// Runs a program to its end and returns what it prints.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn main() {
    let arguments = Arguments::from_args();
    lab::namespace::enter().expect("namespaces: wants root or unprivileged user namespaces");
    let trials = [
        decoded::trials(),
        syscalls::trials(),
        keepalived::trials(),
        neutron::trials(),
        backlog::trials(),
        process_manager::trials(),
        conntrackd::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}
