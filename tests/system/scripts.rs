//! The programs and scripts of the packages, called by somebody who wants to know what they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use lab::namespace::mount_tmpfs;
use nix::sched::{CloneFlags, unshare};

use crate::world::{copy_program, setup};

/// A thread of its own gets `/usr/sbin` and `/usr/local` of its own.
#[apply(trial)]
fn help_and_version_do_nothing_else() {
    thread::spawn(call_all).join().unwrap();
}

fn call_all() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    for directory in ["/usr/sbin", "/usr/local"] {
        mount_tmpfs(Path::new(directory)).unwrap();
    }
    let neutron = Path::new("/usr/local/libexec/keepwatch-neutron");
    fs::create_dir_all(neutron).unwrap();
    for script in files(&repository.join("cross/neutron")) {
        fs::copy(&script, neutron.join(script.file_name().unwrap())).unwrap();
    }
    let [program, hand_over] = ["/usr/sbin/keepwatch", "/usr/sbin/hand-over"].map(PathBuf::from);
    let monitor = neutron.join("neutron-keepalived-state-change");
    for path in [&program, &hand_over, &monitor] {
        copy_program(&setup(), path);
    }
    let version = ask(&program, "--version");
    let mut programs = vec![hand_over, repository.join("docs/hook.sh")];
    for directory in ["cross/systemd", "cross/openwrt/files", neutron.to_str().unwrap()] {
        programs.extend(files(&repository.join(directory)));
    }
    programs.retain(|path| fs::metadata(path).unwrap().permissions().mode() & 0o111 != 0);
    // OpenWrt's rc.common answers for an init script: cross/openwrt/test.
    programs.retain(|path| !path.ends_with("keepwatch.init"));
    for program in &programs {
        let help = ask(program, "--help");
        assert!(help.to_lowercase().starts_with("usage: "), "{}: {help}", program.display());
        // An example to copy.
        if !program.ends_with("hook.sh") {
            assert_eq!(ask(program, "--version"), version, "{}", program.display());
        }
    }
    assert!(programs.len() >= 16, "{programs:?}");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns the answer. Without a search path, each program that a script runs is an error.
fn ask(program: &Path, option: &str) -> String {
    let output = Command::new(program).arg(option).env_clear().env("PATH", "/none").output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && error.is_empty(), "{} {option}: {error}", program.display());
    String::from_utf8(output.stdout).unwrap()
}
