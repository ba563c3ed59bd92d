//! Locked memory: reclaim while the daemon sleeps, and limits.

#![expect(unsafe_code, reason = "system calls between fork and exec")]

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;

use lab::daemon::Running;
use lab::files::content;
use lab::memory::reclaim;
use lab::old_kernel::without_call;
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};

use crate::world::{World, setup};

/// Returns how often the process has waited for a disk to read a page (`proc_pid_stat(5)`, field 12).
fn major_faults(keepwatch: &Running) -> u64 {
    let stat = content(Path::new(&format!("/proc/{}/stat", keepwatch.pid())));
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(12 - 3).unwrap().parse().unwrap()
}

/// Reclaims memory and returns the number of major faults in the next transition.
fn faults_after_reclaim(world: &World, keepwatch: &Running, program: &Path) -> u64 {
    for present in [true, false] {
        world.deliver(present);
    }
    keepwatch.wait_asleep();
    let before = major_faults(keepwatch);
    reclaim(keepwatch.pid(), program);
    world.deliver(true);
    major_faults(keepwatch) - before
}

#[apply(trial_with_other_users)]
fn nothing_is_read_from_disk() {
    // A copy of the program, on a real disk, as concurrent tests run daemons from the original.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keepwatch-locked");
    fs::copy(setup().program, &program).unwrap();
    File::open(&program).unwrap().sync_all().unwrap();
    let new_world = || {
        let mut setup = setup().with("--no-announce");
        setup.program.clone_from(&program);
        World::with(setup)
    };
    let world = new_world();
    let keepwatch = world.setup.start();
    assert_eq!(faults_after_reclaim(&world, &keepwatch, &program), 0);
    assert!(!world.setup.log().contains("memory is not locked"), "{}", world.setup.log());
    assert_eq!(keepwatch.terminate().unwrap().code(), Some(0));

    // Without locked memory there are faults, which proves that reclaim works.
    let world = new_world();
    let refuse = |command: &mut _| without_call(command, libc::SYS_mlockall);
    let keepwatch = world.setup.daemonize_with(refuse);
    keepwatch.wait_log("memory is not locked: Function not implemented (ENOSYS)", 1);
    assert_ne!(faults_after_reclaim(&world, &keepwatch, &program), 0);
}

/// The current memory fits into the lower limit, but the kernel kills a process whose locked stack grows beyond its
/// limit.
#[apply(trial_with_other_users)]
fn limit_without_room_for_the_stack() {
    const KIB: u64 = 1024;
    let world = World::new();
    let size = {
        let keepwatch = world.setup.start();
        keepwatch.wait_log("Notified", 1);
        let size = keepwatch.proc_status("VmSize");
        size.strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * KIB
    };
    for (room, is_locked) in [(512 * KIB, false), (1280 * KIB, true)] {
        let limit = move || {
            // SAFETY: a system call without pointers.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) };
            Errno::result(dropped)?;
            Ok(setrlimit(Resource::RLIMIT_MEMLOCK, size + room, size + room)?)
        };
        let _ = fs::remove_file(world.setup.log_file());
        // SAFETY: nothing but system calls.
        let keepwatch =
            world.setup.daemonize_with(|command| unsafe { _ = command.pre_exec(limit) });
        keepwatch.wait_log("Wrote", 1);
        assert_eq!(world.setup.log().contains("memory is not locked: "), !is_locked);
        assert_eq!(keepwatch.proc_status("VmLck") != "0 kB", is_locked);
    }
}

// include/uapi/linux/capability.h
const CAP_SYS_RESOURCE: libc::c_int = 24;
