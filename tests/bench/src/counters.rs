//! What the kernel counts of a program and of everything that it starts.

use std::error::Error;
use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Counter};

/// Cumulative numbers, or the difference of two of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time in milliseconds.
    pub cpu: f64,
    pub switches: f64,
    pub system_calls: f64,
    /// Page faults that waited for a disk.
    pub major_faults: f64,
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            switches: self.switches - before.switches,
            system_calls: self.system_calls - before.system_calls,
            major_faults: self.major_faults - before.major_faults,
        }
    }
}

/// Counts one program, with all its threads and descendants.
#[derive(Debug)]
pub struct Counters {
    cpu: Counter,
    switches: Counter,
    system_calls: Counter,
    major_faults: Counter,
}

impl Counters {
    /// To be called before the program has started another: only what is born later is included.
    pub fn new(pid: u32) -> Result<Self, Box<dyn Error>> {
        let pid = i32::try_from(pid)?;
        let open = |mut builder: Builder| {
            builder.observe_pid(pid).any_cpu().inherit(true).include_kernel().enabled(true).build()
        };
        Ok(Self {
            cpu: open(Builder::new(Software::TASK_CLOCK))?,
            switches: open(Builder::new(Software::CONTEXT_SWITCHES))?,
            system_calls: open(Builder::new(system_calls()?))?,
            major_faults: open(Builder::new(Software::PAGE_FAULTS_MAJ))?,
        })
    }

    /// Everything until now.
    pub fn read(&mut self) -> Result<Usage, Box<dyn Error>> {
        Ok(Usage {
            cpu: self.cpu.read()? as f64 / 1e6,
            switches: self.switches.read()? as f64,
            system_calls: self.system_calls.read()? as f64,
            major_faults: self.major_faults.read()? as f64,
        })
    }

    /// Waits until there was no system call for a while.
    pub fn wait_quiet(&mut self, quiet: Duration) -> Result<(), Box<dyn Error>> {
        let mut seen = self.read()?.system_calls;
        let mut since = Instant::now();
        while since.elapsed() < quiet {
            // Nothing tells of rest, so it has to be looked for now and then.
            thread::sleep(quiet / 10);
            let now = self.read()?.system_calls;
            if now > seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

/// The tracepoint that every system call passes.
fn system_calls() -> Result<Tracepoint, Box<dyn Error>> {
    let path = Path::new("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
    if !path.exists() {
        // In a mount namespace of our own.
        let (none, directory): (Option<&str>, _) = (None, "/sys/kernel/tracing");
        mount(Some("tracefs"), directory, Some("tracefs"), MsFlags::empty(), none)
            .map_err(|error| format!("tracefs: {error}"))?;
    }
    let id = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Tracepoint::with_id(id.trim_end().parse()?))
}
