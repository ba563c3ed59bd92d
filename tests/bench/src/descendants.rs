//! All running descendants: the other processes of the PID namespace whose process 1 this is.

use std::fs;
use std::process;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Whether this is process 1, so that all other processes are descendants.
pub fn are_alone() -> bool {
    process::id() == 1
}

/// Returns the pids of all descendants that have not ended.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != 1 && fs::read_link(format!("/proc/{pid}/exe")).is_ok()).collect()
}

/// Kills all descendants and waits for their end.
pub fn kill_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(None, None) != Err(Errno::ECHILD) {}
}
