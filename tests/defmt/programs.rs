//! The two programs, as they are shipped: release builds, stripped.
//!
//! `KEEPWATCH_PROGRAMS` may name a directory that has those for another machine, and
//! `KEEPWATCH_RUNNER` what runs them here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::daemon::Setup;
use lab::files::write_program;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Text,
    Frames,
}

impl Log {
    /// The program with its symbols.
    pub fn symbols(self) -> PathBuf {
        self.stripped().with_extension("elf")
    }

    /// What goes to a device.
    fn stripped(self) -> PathBuf {
        directory().join(if self == Self::Text { "text" } else { "frames" })
    }

    /// What runs that here.
    fn program(self) -> PathBuf {
        self.stripped().with_extension("run")
    }

    /// A setup for the stripped program, whose log is read with the symbols.
    pub fn setup(self) -> Setup {
        let mut setup = Setup::new(self.program());
        setup.symbols = self.symbols();
        setup
    }
}

fn directory() -> PathBuf {
    env::var_os("KEEPWATCH_PROGRAMS").map_or(tmp().join("programs"), PathBuf::from)
}

/// A directory for what is built for these tests.
pub fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Makes both programs ready to run.
pub fn provide() {
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
    // A target directory for each, as both are called the same.
    let target = tmp().join(if log == Log::Text { "text" } else { "frames" });
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--release", "--locked", "--bin", "keepwatch"]);
    cargo.arg("--target-dir").arg(&target);
    if log == Log::Frames {
        cargo.args(["--features", "defmt"]);
    }
    assert!(cargo.status().expect("cargo").success(), "{log:?} does not build");
    fs::create_dir_all(directory()).expect("a directory for the programs");
    fs::copy(target.join("release/keepwatch"), log.symbols()).expect("the program");
    // Some program may still run from the old one.
    let _ = fs::remove_file(log.stripped());
    let mut strip = Command::new("strip");
    let strip = strip.arg("-o").args([log.stripped(), log.symbols()]).status().expect("strip");
    assert!(strip.success(), "{log:?} cannot be stripped");
}

/// Cargo, for this package.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}
