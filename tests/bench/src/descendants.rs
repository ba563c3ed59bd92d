//! Everything that was started and still runs, however often it forked.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Adopts what loses its parent, so that a daemon stays a descendant.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// All of them now, parents before children.
pub fn all() -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(&entry.path()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![process::id()];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found.split_off(1)
}

/// The parent of a process that has not ended.
fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name before it is in parentheses and may contain anything.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (rest.next()?, rest.next()?);
    if state == "Z" { None } else { parent.parse().ok() }
}

/// Ends them all and waits for that.
pub fn kill_all() {
    loop {
        let running = all();
        for pid in &running {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        // Those that fork while this goes on, and orphans that come to us, are for the next turn.
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) if running.is_empty() => return,
                Err(_) | Ok(WaitStatus::StillAlive) => break,
                Ok(_) => {}
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}
