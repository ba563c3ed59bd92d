//! Links the program with the texts of its log set apart, for feature `defmt`. Without that it does
//! nothing.

use std::env;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = "src/log/compact.x";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_DEFMT").is_none() {
        return;
    }
    println!("cargo::rerun-if-changed={SCRIPT}");
    if let Some(linker) = unsuitable_linker() {
        println!(
            "cargo::error=feature `defmt` needs a linker script, which {linker} does not take: link \
             with GNU ld or lld, by RUSTFLAGS=-Clink-arg=-fuse-ld=bfd or -Clink-arg=-fuse-ld=lld"
        );
    }
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = Path::new(&root).join(SCRIPT);
    // One of the tests is a keepwatch of its own.
    for programs in ["bins", "tests"] {
        println!("cargo::rustc-link-arg-{programs}=-Wl,-T,{}", script.display());
        // Frames call a text by its address, which must not depend on where the program is loaded.
        println!("cargo::rustc-link-arg-{programs}=-no-pie");
    }
    // What defmt compiles in; `--debug` decides what is logged. A value from outside may leave it out.
    println!("cargo::rerun-if-env-changed=DEFMT_LOG");
    let levels = env::var("DEFMT_LOG").unwrap_or("debug".into());
    println!("cargo::rustc-env=DEFMT_LOG={levels}");
}

/// The name of the linker if it is one that cannot do it.
fn unsuitable_linker() -> Option<&'static str> {
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or("cc".into());
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let choice = flags.split('\u{1f}').filter_map(|flag| {
        let argument = flag.strip_prefix("-C").unwrap_or(flag).strip_prefix("link-arg=")?;
        Some(argument).filter(|argument| argument.starts_with("-fuse-ld="))
    });
    let output = Command::new(compiler).args(choice).arg("-Wl,--version").output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout);
    ["gold", "mold"].into_iter().find(|name| version.contains(name))
}
