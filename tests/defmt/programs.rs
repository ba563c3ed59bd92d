//! The two programs as shipped: stripped release builds.
//!
//! `KEEPWATCH_PROGRAMS` may name a directory with those for another machine, and `KEEPWATCH_RUNNER` their emulator.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::daemon::Setup;
use lab::files::write_program;

/// The form of a program's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Text,
    Frames,
}

impl Log {
    /// Returns the program with its symbols.
    pub fn symbols(self) -> PathBuf {
        self.stripped().with_extension("elf")
    }

    /// Returns the program for a device.
    fn stripped(self) -> PathBuf {
        directory().join(if self == Self::Text { "text" } else { "frames" })
    }

    /// Returns the script that runs that program here.
    fn program(self) -> PathBuf {
        self.stripped().with_extension("run")
    }

    /// Returns a setup for the stripped program, whose log is decoded by the symbols.
    pub fn setup(self) -> Setup {
        let mut setup = Setup::new(self.program());
        setup.symbols = self.symbols();
        setup
    }
}

fn directory() -> PathBuf {
    env::var_os("KEEPWATCH_PROGRAMS").map_or(tmp().join("programs"), PathBuf::from)
}

/// Returns the directory for builds of these tests.
pub fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Builds both programs, and writes their scripts. Each test has a process, and the list of tests is asked for by two at
/// once, so they do it in turn.
pub fn provide() {
    let turn = File::create(tmp().join("programs.lock")).expect("a lock for the programs");
    turn.lock().expect("a turn");
    for log in [Log::Text, Log::Frames] {
        if env::var_os("KEEPWATCH_PROGRAMS").is_none() {
            build(log);
        }
        let runner = env::var("KEEPWATCH_RUNNER").unwrap_or_default();
        let script = format!("#!/bin/sh\nexec {runner} \"{}\" \"$@\"\n", log.stripped().display());
        write_program(&log.program(), &script);
    }
}

fn build(log: Log) {
    // Each has a target directory, as both have the same name.
    let target = tmp().join(if log == Log::Text { "text" } else { "frames" });
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--release", "--locked", "--bin", "keepwatch"]);
    cargo.arg("--target-dir").arg(&target);
    if log == Log::Frames {
        cargo.args(["--features", "defmt"]);
    }
    assert!(cargo.status().expect("cargo").success(), "{log:?} does not build");
    fs::create_dir_all(directory()).expect("a directory for the programs");
    let built = target.join("release/keepwatch");
    // Copied last, so it shows that the program was stripped.
    if fs::read(log.symbols()).is_ok_and(|known| fs::read(&built).is_ok_and(|new| new == known)) {
        return;
    }
    // A running program keeps the old file.
    let _ = fs::remove_file(log.stripped());
    let strip = Command::new("strip").arg("-o").args([&log.stripped(), &built]).status();
    assert!(strip.expect("strip").success(), "{log:?} cannot be stripped");
    fs::copy(built, log.symbols()).expect("the program with its symbols");
}

/// Returns the command for cargo in this package.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}
