//! The program together with its real peers, which `tests/run` installs. A test whose peer is missing fails.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[macro_use]
extern crate lab;

mod agent_server;
mod conntrackd;
mod host;
mod keepalived;
mod l3_agent;
mod neutron;
mod node;
mod openvswitch;
mod placement;
mod process_manager;
mod rootwrap;
mod scripts;
#[path = "../system/world.rs"]
#[expect(dead_code, reason = "these tests need only a part of it")]
mod world;

use std::process::Command;

/// Runs a program and returns its output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn main() {
    lab::trial::run()
}
