//! However an agent starts its children: standard streams that are closed, or pipes nobody reads.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use lab::daemon::Setup;
use libtest_mimic::Trial;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;

use crate::world::{Killed, World, word};

pub fn trials() -> Vec<Trial> {
    lab::trials![
        streams_closed,
        pipes_nobody_reads,
        daemon_leaves_its_pipes_alone,
        terminal_nobody_reads,
        terminal_of_another_session,
        socket_nobody_reads,
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
pub fn without_log_file(setup: &Setup) -> Command {
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

/// What is there to be read, without waiting for more.
fn read_now(file: impl Into<OwnedFd>) -> Vec<u8> {
    let file = file.into();
    let (mut log, mut buffer) = (Vec::new(), [0; 4096]);
    while lab::files::wait_readable(&file, std::time::Duration::ZERO) {
        match nix::unistd::read(&file, &mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => log.extend_from_slice(&buffer[..length]),
        }
    }
    log
}

/// As when the connection of an ssh is frozen.
fn terminal_nobody_reads() {
    let world = World::new();
    let terminal = openpty(None, None).unwrap();
    let shared = terminal.slave.try_clone().unwrap();
    let mut command = without_log_file(&world.setup);
    let keepwatch = Killed(command.arg("--debug").stderr(terminal.slave).spawn().unwrap());
    a_thousand_flips(&world);
    let flags = OFlag::from_bits_retain(fcntl(&shared, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_NONBLOCK), "others have the same terminal");
    drop(keepwatch);
    let log = read_now(terminal.master);
    assert!(!log.is_empty());
    #[cfg(not(feature = "defmt"))]
    assert!(String::from_utf8_lossy(&log).contains(" DEBUG "));
}

/// In the background of a session whose terminal stops whoever writes to it from there.
fn terminal_of_another_session() {
    let world = World::new();
    let terminal = openpty(None, None).unwrap();
    let command = without_log_file(&world.setup);
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "sh", "-mc", "stty tostop; \"$0\" \"$@\" & sleep 1000"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell.stdin(terminal.slave.try_clone().unwrap()).stderr(terminal.slave);
    let _shell = Killed(shell.stdout(Stdio::null()).spawn().unwrap());
    for present in [false, true, false] {
        world.agent.wait_acknowledged(word(present));
        world.set_vip(!present);
    }
    world.setup.running().terminate();
}

/// As of journald.
fn socket_nobody_reads() {
    let world = World::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = without_log_file(&world.setup);
    command.arg("--debug").stderr(OwnedFd::from(theirs));
    let keepwatch = Killed(command.spawn().unwrap());
    drop(command);
    world.agent.wait_acknowledged("backup");
    a_thousand_flips(&world);
    drop(keepwatch);
    let text = world.setup.text(read_now(ours));
    assert!(text.contains(" DEBUG "), "{text}");
}
