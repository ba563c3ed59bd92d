//! Busy cores.

use std::error::Error;
use std::process::{self, Command};

use nix::sched::CpuSet;

/// The number of loops on each core.
const LOOPS: usize = 2;

/// Keeps all cores busy until all descendants are killed. The measuring thread has priority.
pub fn begin(cores: &CpuSet) -> Result<(), Box<dyn Error>> {
    for core in (0..CpuSet::count()).filter(|core| cores.is_set(*core) == Ok(true)) {
        for _ in 0..LOOPS {
            let core = core.to_string();
            let shell = ["--cpu-list", &core, "sh", "-c", "while :; do :; done"];
            Command::new("taskset").args(shell).spawn()?;
        }
    }
    // The priority applies to this thread, which must be the first one, but not to its children.
    let pid = process::id().to_string();
    let fifo = ["--reset-on-fork", "--fifo", "--pid", "1", &pid];
    let status = Command::new("chrt").args(fifo).status()?;
    if status.success() { Ok(()) } else { Err(format!("chrt: {status}").into()) }
}
