//! Warnings at the start, of what works but should not be so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::Mode;

use crate::log::{DisplayArg, warning};
use crate::options::{Config, Program, REFUSED};
use crate::sys::netns::NamespaceWatch;

pub(super) fn warn(
    config: &Config,
    conntrackd: Option<&Program>,
    namespace: Option<&NamespaceWatch>,
) {
    // A user who puts a program of his own into root's `PATH` must not have it run by root.
    if let Some(path) = conntrackd.and_then(|program| program.refused.as_ref()) {
        warning!("{}: {}", DisplayArg(path.display()), DisplayArg(REFUSED));
    }
    // Who can write to the state file's directory can say what the state is.
    if mode(&config.conf_dir).contains(Mode::S_IWOTH) {
        warning!("world-writable directory: {}", DisplayArg(config.conf_dir.display()));
    }
    if let Some(directory) = config.agent_socket.as_deref().and_then(Path::parent) {
        warn_agent_directory(directory);
    }
    // The user that the daemon runs as may not be permitted to look at it.
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        warning!("deletion of the network namespace will go unnoticed: {}", DisplayArg(errno));
    }
}

/// Who can make the directory of the agent's socket owns it, and so is believed to be the agent.
fn warn_agent_directory(directory: &Path) {
    let Some(above) = directory.ancestors().skip(1).find(|above| above.exists()) else { return };
    let is_sticky = mode(above).contains(Mode::S_ISVTX);
    if mode(above).contains(Mode::S_IWOTH) && !(is_sticky && directory.exists()) {
        let (above, directory) = (DisplayArg(above.display()), DisplayArg(directory.display()));
        warning!(
            "world-writable directory: {}; who makes {} is trusted as agent",
            above,
            directory
        );
    }
}

fn mode(path: &Path) -> Mode {
    Mode::from_bits_truncate(fs::metadata(path).map_or(0, |file| file.mode()))
}
