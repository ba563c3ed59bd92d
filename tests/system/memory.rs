//! Memory that is reclaimed while the daemon sleeps.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use lab::daemon::{Running, Setup};
use lab::files::content;
use lab::memory::reclaim;
use lab::old_kernel::without_call;
use lab::trial::with_other_users;
use libtest_mimic::Trial;
use nix::libc;

use crate::world::World;

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![limit_that_is_too_low];
    // To have another process's memory reclaimed takes root.
    trials.extend(with_other_users(lab::trials![nothing_is_read_from_disk]));
    trials
}

/// Another file than that of all the daemons that run at the same time, on a real disk.
struct Program(PathBuf);

impl Program {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::copy(env!("CARGO_BIN_EXE_keepwatch"), &path).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        Self(path)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Times that the process waited for a disk to read a page (`proc_pid_stat(5)`, field 12).
fn major_faults(keepwatch: &Running) -> u64 {
    let stat = content(Path::new(&format!("/proc/{}/stat", keepwatch.pid())));
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(12 - 3).unwrap().parse().unwrap()
}

/// Faults in the transition that follows reclaim.
fn faults_after_reclaim(world: &World, keepwatch: &Running, program: &Path) -> u64 {
    for present in [true, false] {
        world.set_vip(present);
        world.agent.wait_acknowledged(crate::world::word(present));
    }
    keepwatch.wait_asleep();
    let before = major_faults(keepwatch);
    reclaim(keepwatch.pid(), program);
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    major_faults(keepwatch) - before
}

fn nothing_is_read_from_disk() {
    let program = Program::new("keepwatch-locked");
    let world = World::with(Setup::new(&program.0).with("--no-announce"));
    let keepwatch = world.setup.start();
    assert_eq!(faults_after_reclaim(&world, &keepwatch, &program.0), 0);
    assert!(!world.setup.log().contains("memory is not locked"), "{}", world.setup.log());
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));

    // The same where nothing is locked, to know that it was reclaimed.
    let world = World::with(Setup::new(&program.0).with("--no-announce"));
    let mut command = world.setup.command();
    without_call(&mut command, libc::SYS_mlockall);
    let keepwatch = world.setup.adopt(&command.output().unwrap());
    keepwatch.wait_log("memory is not locked: Function not implemented (ENOSYS)", 1);
    assert_ne!(faults_after_reclaim(&world, &keepwatch, &program.0), 0);
}

/// Who cannot raise it goes on without, and says so once.
fn limit_that_is_too_low() {
    let world = World::new();
    let mut command = world.setup.command();
    without_call(&mut command, libc::SYS_mlockall);
    let keepwatch = world.setup.adopt(&command.output().unwrap());
    keepwatch.wait_log("memory is not locked", 1);
    world.set_vip(true);
    keepwatch.wait_state("master");
}
