//! Warnings at the start, of what works but should not be so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::Mode;

use crate::log::{DisplayArg, warning};
use crate::options::{Config, Program, REFUSED};
use crate::sys::netns::NamespaceWatch;

/// Logs all of them.
pub(super) fn warn(
    config: &Config,
    conntrackd: Option<&Program>,
    namespace: Option<&NamespaceWatch>,
) {
    warn_refused_program(conntrackd);
    warn_world_writable(&config.conf_dir);
    if let Some(socket) = &config.agent_socket {
        warn_agent_directory(socket);
    }
    warn_hidden_namespace(namespace);
}

/// A user who puts a program of his own into root's `PATH` must not have it run by root.
fn warn_refused_program(program: Option<&Program>) {
    if let Some(path) = program.and_then(|program| program.refused.as_ref()) {
        warning!("{}: {}", DisplayArg(path.display()), DisplayArg(REFUSED));
    }
}

/// Who can write to the state file's directory can say what the state is.
fn warn_world_writable(directory: &Path) {
    if mode(directory).contains(Mode::S_IWOTH) {
        warning!("world-writable directory: {}", DisplayArg(directory.display()));
    }
}

/// Who can make the directory of the agent's socket owns it, and so is believed to be the agent.
fn warn_agent_directory(socket: &Path) {
    let Some(directory) = socket.parent() else { return };
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

/// The user that the daemon runs as may not be permitted to look at it.
fn warn_hidden_namespace(namespace: Option<&NamespaceWatch>) {
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        warning!("deletion of the network namespace will go unnoticed: {}", DisplayArg(errno));
    }
}
