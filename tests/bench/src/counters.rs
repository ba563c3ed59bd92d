//! The kernel's counters of a program and its descendants.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Counter};

/// Total numbers or differences: milliseconds of CPU time, context switches, system calls, and major page faults.
pub type Usage = [f64; 4];

/// The counters of one program with all its threads and descendants.
#[derive(Debug)]
pub struct Counters([Counter; 4]);

impl Counters {
    /// Begins to count. Call it before the program has children, as only later ones are included.
    pub fn new(pid: u32) -> Result<Self, Box<dyn Error>> {
        let pid = i32::try_from(pid)?;
        let open = |mut builder: Builder| {
            builder.observe_pid(pid).any_cpu().inherit(true).include_kernel().enabled(true).build()
        };
        Ok(Self([
            open(Builder::new(Software::TASK_CLOCK))?,
            open(Builder::new(Software::CONTEXT_SWITCHES))?,
            open(Builder::new(system_calls()?))?,
            open(Builder::new(Software::PAGE_FAULTS_MAJ))?,
        ]))
    }

    /// Returns the totals so far.
    pub fn read(&mut self) -> Result<Usage, Box<dyn Error>> {
        let mut usage = Usage::default();
        for (number, counter) in usage.iter_mut().zip(&mut self.0) {
            *number = counter.read()? as f64;
        }
        usage[0] /= 1e6;
        Ok(usage)
    }

    /// Waits until no system call has happened for a while.
    pub fn wait_quiet(&mut self, quiet: Duration) -> Result<(), Box<dyn Error>> {
        let [_, _, mut seen, _] = self.read()?;
        let mut since = Instant::now();
        while since.elapsed() < quiet {
            // Rest has no event, so this polls.
            thread::sleep(quiet / 10);
            let [_, _, now, _] = self.read()?;
            if now > seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

/// Returns the tracepoint of every system call.
fn system_calls() -> Result<Tracepoint, Box<dyn Error>> {
    let path = Path::new("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
    if !path.exists() {
        // This mount namespace is our own.
        let (none, directory): (Option<&str>, _) = (None, "/sys/kernel/tracing");
        mount(Some("tracefs"), directory, Some("tracefs"), MsFlags::empty(), none)
            .map_err(|error| format!("tracefs: {error}"))?;
    }
    let id = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Tracepoint::with_id(id.trim_end().parse()?))
}
