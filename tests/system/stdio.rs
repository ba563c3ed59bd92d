//! However an agent starts its children: standard streams that are closed, or pipes nobody reads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use lab::daemon::Setup;
use libtest_mimic::Trial;
use nix::fcntl::{FcntlArg, fcntl};

use crate::world::{World, word};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        streams_closed,
        pipes_nobody_reads,
        pipes_closed_at_the_other_end,
        daemon_leaves_its_pipes_alone,
    ]
}

/// Flips the VIP 1,000 times.
fn a_thousand_flips(world: &World) {
    for flip in 0..998 {
        world.set_vip(flip % 2 == 0);
    }
    for present in [true, false] {
        world.set_vip(present);
        world.agent.wait_acknowledged(word(present));
    }
}

/// In the foreground, with its log going to standard error.
fn without_log_file(setup: &Setup) -> Command {
    let mut command = Command::new(setup.command().get_program());
    let is_log_file = |arg: &OsStr| arg.as_bytes().starts_with(b"--log-file");
    command.args(setup.command().get_args().filter(|arg| !is_log_file(arg))).arg("--foreground");
    command
}

fn streams_closed() {
    let world = World::new();
    let (setup, agent) = (&world.setup, &world.agent);
    for foreground in [true, false] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]).arg(setup.command().get_program());
        command.args(setup.command().get_args()).args(foreground.then_some("--foreground"));
        let mut child = command.spawn().unwrap();
        agent.wait_acknowledged("backup");
        if !foreground {
            assert!(child.wait().unwrap().success());
        }
        a_thousand_flips(&world);
        setup.running().terminate();
        assert!(child.wait().unwrap().success());
    }
}

fn pipes_nobody_reads() {
    let world = World::new();
    let mut command = without_log_file(&world.setup);
    command.arg("--debug").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The least the kernel makes of it, so that it is soon full.
    let stderr = child.stderr.take().unwrap();
    fcntl(&stderr, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    a_thousand_flips(&world);
    child.kill().unwrap();
    child.wait().unwrap();
    let log = lab::files::read_all(stderr);
    assert!(log.len() <= 4096, "{} bytes", log.len());
    let text = world.setup.text(log);
    assert!(text.contains(" DEBUG "), "{text}");
}

fn pipes_closed_at_the_other_end() {
    let world = World::new();
    let (setup, agent) = (&world.setup, &world.agent);
    let mut command = without_log_file(setup);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    agent.wait_acknowledged("backup");
    a_thousand_flips(&world);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The daemon holds none of the pipes of whoever started it, and writes nothing into them.
fn daemon_leaves_its_pipes_alone() {
    let world = World::new();
    let mut command = world.setup.command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    world.agent.wait_acknowledged("backup");
    // Read to the end, which only comes when nobody holds the other end any more.
    assert_eq!(lab::files::read_all(child.stdout.take().unwrap()), b"");
    assert_eq!(lab::files::read_all(child.stderr.take().unwrap()), b"");
    let _keepwatch = world.setup.running();
    a_thousand_flips(&world);
}
