//! Busy cores.

use std::error::Error;
use std::hint;
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Loops on each core.
const LOOPS: usize = 2;

/// Keeps all cores busy until dropped. Ourselves, who measure, it does not keep from running.
#[derive(Debug)]
pub struct Load(Arc<AtomicBool>);

impl Load {
    pub fn new(cores: &CpuSet) -> Result<Self, Box<dyn Error>> {
        let load = Self(Arc::default());
        for core in (0..CpuSet::count()).filter(|core| cores.is_set(*core) == Ok(true)) {
            for _ in 0..LOOPS {
                let ended = Arc::clone(&load.0);
                let mut only = CpuSet::new();
                only.set(core)?;
                thread::spawn(move || {
                    // Should it fail, the loops are spread by the kernel.
                    let _ = sched_setaffinity(Pid::from_raw(0), &only);
                    while !ended.load(Ordering::Relaxed) {
                        hint::spin_loop();
                    }
                });
            }
        }
        schedule(&["--reset-on-fork", "--fifo"], 1)?;
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Err(error) = schedule(&["--other"], 0) {
            eprintln!("bench: {error}");
        }
    }
}

/// Changes how this thread, which has to be the first, is scheduled; what it starts is as before.
fn schedule(policy: &[&str], priority: u32) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new("chrt");
    command.args(policy).args(["--pid", &priority.to_string(), &process::id().to_string()]);
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("chrt: {status}").into()) }
}
