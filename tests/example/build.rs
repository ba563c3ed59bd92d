//! Builds the program for the examples.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program in the profile of this example. Returns its path.
pub fn build() -> Result<PathBuf, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let release = if cfg!(debug_assertions) { None } else { Some("--release") };
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let arguments = ["build", "--quiet", "--bin", "keepwatch", "--manifest-path", manifest];
    if !Command::new(cargo).args(arguments).args(release).status()?.success() {
        return Err("keepwatch does not build".into());
    }
    let example = env::current_exe()?;
    let profile = example.parent().and_then(Path::parent).ok_or("not built by cargo")?;
    Ok(profile.join("keepwatch"))
}
