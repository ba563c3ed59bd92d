//! What it is good for, as a table, and how much of that is promised.

use std::fs;

use libtest_mimic::Trial;

use crate::programs::Log;
use crate::world::{World, word};

/// Transitions that the bytes of the log are counted over.
const TRANSITIONS: usize = 20;

pub fn trials() -> Vec<Trial> {
    crate::trials![figures]
}

fn figures() {
    let [text, frames] = [Log::Text, Log::Frames].map(|log| {
        let size = fs::metadata(log.stripped()).unwrap().len();
        (bytes_per_transition(log), usize::try_from(size).unwrap())
    });
    println!("\n{:<26}{:>10}{:>10}{:>9}", "", "text", "defmt", "");
    for (what, text, frames) in [
        ("log, bytes a transition", text.0, frames.0),
        ("stripped program, bytes", text.1, frames.1),
    ] {
        println!("{what:<26}{text:>10}{frames:>10}{:>7} %", frames * 100 / text);
    }
    assert!(frames.0 * 100 <= text.0 * 40, "more than 40 % of text");
    assert!(frames.1 <= text.1, "a larger program");
}

/// As the program logs it by default, for a router with a UUID.
fn bytes_per_transition(log: Log) -> usize {
    let world = World::with(log.setup());
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    let length = || fs::metadata(world.setup.log_file()).unwrap().len();
    let before = length();
    for transition in 0..TRANSITIONS {
        world.set_vip(transition % 2 == 0);
        world.agent.wait_acknowledged(word(transition % 2 == 0));
        keepwatch.wait_log("Notified agent router", transition + 2);
    }
    usize::try_from(length() - before).unwrap() / TRANSITIONS
}
