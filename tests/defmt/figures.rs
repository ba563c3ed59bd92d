//! What it is good for, in figures, and how much of that is promised.

use std::fs;

use crate::programs::Log;
use crate::world::{World, word};

/// Transitions that the bytes of the log are counted over.
const TRANSITIONS: u64 = 20;

/// Prints a row of the table, and tells how many per cent of text that is.
fn compare(what: &str, [text, frames]: [u64; 2]) -> u64 {
    let percent = frames * 100 / text;
    println!("{what:<25} text {text:>8}   defmt {frames:>8}   {percent:>3} %");
    percent
}

#[apply(trial)]
fn program_size() {
    let sizes = [Log::Text, Log::Frames].map(|log| fs::metadata(log.stripped()).unwrap().len());
    compare("stripped program, bytes", sizes);
    assert!(sizes[1] <= sizes[0], "a larger program");
}

#[apply(trial)]
fn log_size() {
    let sizes = [Log::Text, Log::Frames].map(bytes_per_transition);
    assert!(compare("log, bytes a transition", sizes) <= 40);
}

/// As the program logs it by default, for a router with a UUID.
fn bytes_per_transition(log: Log) -> u64 {
    let world = World::with(log.setup());
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    let length = || fs::metadata(world.setup.log_file()).unwrap().len();
    let before = length();
    for transition in 0..TRANSITIONS {
        world.set_vip(transition % 2 == 0);
        world.agent.wait_acknowledged(word(transition % 2 == 0));
        keepwatch.wait_log("Notified agent router", 2 + usize::try_from(transition).unwrap());
    }
    (length() - before) / TRANSITIONS
}
