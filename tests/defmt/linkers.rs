//! Linkers that work, and the error with other ones.

use lab::frames::Decoder;

use crate::programs::{cargo, tmp};

/// Builds with a linker. Returns whether that succeeds, and the errors.
fn build(linker: &str) -> (bool, String) {
    let directory = tmp().join("linkers");
    let mut cargo = cargo();
    cargo
        .args(["build", "--quiet", "--locked", "--bin", "keepwatch", "--features", "defmt"])
        .arg("--target-dir")
        .arg(&directory)
        .env("RUSTFLAGS", format!("-Clinker-features=-lld -Clink-arg=-fuse-ld={linker}"));
    let output = cargo.output().unwrap();
    if output.status.success() {
        let program = directory.join("debug/keepwatch");
        assert!(Decoder::of(&program).is_some(), "linked without the texts");
    }
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The other tests use rustc's own linker.
#[apply(trial)]
fn gnu_ld() {
    let (linked, error) = build("bfd");
    assert!(linked, "{error}");
}

#[apply(trial)]
fn unsuitable() {
    let (linked, error) = build("gold");
    assert!(!linked);
    let named = concat!(
        "error: keepwatch@",
        env!("CARGO_PKG_VERSION"),
        ": feature `defmt` needs a linker script, which gold does not take: link with GNU ld or lld"
    );
    assert!(error.contains(named), "{error}");
}
