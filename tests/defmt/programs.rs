//! The two programs, as they are shipped: release builds, stripped.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::daemon::Setup;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Text,
    Frames,
}

impl Log {
    /// A target directory of its own, as both are called the same.
    fn directory(self) -> PathBuf {
        let name = if self == Self::Text { "text" } else { "frames" };
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    }

    /// The program with its symbols.
    pub fn symbols(self) -> PathBuf {
        self.directory().join("release/keepwatch")
    }

    /// What goes to a device.
    pub fn stripped(self) -> PathBuf {
        self.directory().join("keepwatch")
    }

    /// A setup for the stripped program, whose log is read with the symbols.
    pub fn setup(self) -> Setup {
        let mut setup = Setup::new(self.stripped());
        setup.symbols = self.symbols();
        setup
    }
}

/// Builds and strips both.
pub fn build() {
    for log in [Log::Text, Log::Frames] {
        let mut cargo = cargo();
        cargo.args(["build", "--quiet", "--release", "--locked", "--bin", "keepwatch"]);
        cargo.arg("--target-dir").arg(log.directory());
        if log == Log::Frames {
            cargo.args(["--features", "defmt"]);
        }
        assert!(cargo.status().expect("cargo").success(), "{log:?} does not build");
        strip(&log.symbols(), &log.stripped());
    }
}

/// Cargo, for this package.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

fn strip(from: &Path, to: &Path) {
    // Some program may still run from the old one.
    let _ = fs::remove_file(to);
    let strip = Command::new("strip").arg("-o").args([to, from]).status().expect("strip");
    assert!(strip.success(), "{} cannot be stripped", from.display());
}
