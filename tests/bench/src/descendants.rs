//! Everything that was started and still runs, however often it forked: what there is beside ourselves, the first
//! process of a PID namespace.

use std::fs;
use std::process;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Whether nobody else would be taken for one of them.
pub fn are_alone() -> bool {
    process::id() == 1
}

/// All of them that have not ended.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != 1 && fs::read_link(format!("/proc/{pid}/exe")).is_ok()).collect()
}

/// Ends them all and waits for that.
pub fn kill_all() {
    // Those of this namespace but ourselves, to whom orphans come.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(None, None) != Err(Errno::ECHILD) {}
}
