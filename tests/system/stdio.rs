//! Standard streams that are closed, or that no process reads.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use lab::daemon::Setup;
use lab::files::{await_readable, look, read_line, wait_readable};
use lab::trial::table;
use lab::users::NOBODY;
use libtest_mimic::Trial;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::signal::Signal;

use crate::privileges::setup_of_nobody;
use crate::world::{Killed, World, copy_program, word};

#[apply(trial)]
fn streams() -> Vec<Trial> {
    let streams: [(&str, Stream); 3] =
        [("unread_pipe", pipe), ("unread_terminal", terminal), ("unread_socket", socket)];
    table(module_path!(), streams, assert_never_blocks).collect()
}

/// Flips the VIP 1,000 times.
fn a_thousand_flips(world: &World) {
    for flip in 0..998 {
        world.set_vip(flip % 2 == 0);
    }
    for present in [true, false] {
        world.deliver(present);
    }
}

/// Returns the command of a daemon in the foreground that logs to standard error.
pub fn without_log_file(setup: &Setup) -> Command {
    let mut command = Command::new(setup.command().get_program());
    let is_log_file = |arg: &OsStr| arg.as_bytes().starts_with(b"--log-file");
    command.args(setup.command().get_args().filter(|arg| !is_log_file(arg))).arg("--foreground");
    command
}

#[apply(trial)]
fn streams_closed() {
    let world = World::new();
    let (setup, agent) = (&world.setup, &world.agent);
    for foreground in [true, false] {
        let mut command = setup.command_behind(&["sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]);
        let mut child = command.args(foreground.then_some("--foreground")).spawn().unwrap();
        agent.wait_acknowledged("backup");
        if !foreground {
            assert!(child.wait().unwrap().success());
        }
        a_thousand_flips(&world);
        setup.running().terminate();
        assert!(child.wait().unwrap().success());
    }
}

/// The daemon keeps none of its starter's pipes open, and writes nothing into them.
#[apply(trial)]
fn daemon_keeps_no_pipe() {
    let world = World::new();
    let mut command = world.setup.command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    world.agent.wait_acknowledged("backup");
    // End of file only comes when no process has the other end open.
    for stream in [child.stdout.take().unwrap().into(), child.stderr.take().unwrap().into()] {
        await_readable(&stream, "the end of its output");
        assert_eq!(read_now(&stream), b"");
    }
    let _keepwatch = world.setup.running();
    a_thousand_flips(&world);
}

/// Reads what is available, without waiting.
fn read_now(file: &OwnedFd) -> Vec<u8> {
    let (mut log, mut buffer) = (Vec::new(), [0; 4096]);
    while wait_readable(file, std::time::Duration::ZERO) {
        match nix::unistd::read(file, &mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => log.extend_from_slice(&buffer[..length]),
        }
    }
    log
}

/// Returns both ends of a stream: ours, and the daemon's standard error.
type Stream = fn() -> [OwnedFd; 2];

fn pipe() -> [OwnedFd; 2] {
    std::io::pipe().map(|(ours, theirs)| [ours.into(), theirs.into()]).unwrap()
}

/// A terminal, as behind a frozen ssh connection.
fn terminal() -> [OwnedFd; 2] {
    openpty(None, None).map(|terminal| [terminal.master, terminal.slave]).unwrap()
}

/// A socket, as journald's.
fn socket() -> [OwnedFd; 2] {
    UnixStream::pair().map(|(ours, theirs)| [ours.into(), theirs.into()]).unwrap()
}

fn assert_never_blocks(stream: Stream) {
    let world = World::new();
    let [ours, theirs] = stream();
    let shared = theirs.try_clone().unwrap();
    let mut command = without_log_file(&world.setup);
    let keepwatch = world.setup.attend(command.arg("--debug").stderr(theirs).spawn().unwrap());
    world.agent.wait_acknowledged("backup");
    a_thousand_flips(&world);
    let flags = OFlag::from_bits_retain(fcntl(&shared, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_NONBLOCK), "other processes share this stream");
    let mut log = read_now(&ours);
    assert!(!log.is_empty());
    keepwatch.signal(Signal::SIGUSR1);
    if cfg!(feature = "defmt") {
        return;
    }
    let lost = b" bytes could not be written and are lost";
    look("how much was lost", || {
        log.extend(read_now(&ours));
        log.windows(lost.len()).any(|window| window == lost)
    });
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains(" DEBUG ") && log.contains(" standard error: "));
    // A cut line does not run into the next one.
    assert!(log.lines().all(|line| line.matches(" keepwatch [-] ").count() <= 1), "{log}");
}

/// The daemon runs in the background of a session whose terminal stops background processes that write to it.
#[apply(trial)]
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

/// A user who may not open the terminal is told so by its descriptor.
#[apply(trial_with_other_users)]
fn terminal_of_another_user() {
    let setup = setup_of_nobody();
    let program = setup.directory().join("keepwatch");
    copy_program(&setup, &program);
    let terminal = openpty(None, None).unwrap();
    let mut command = Command::new("setsid");
    command.arg(program).args(without_log_file(&setup).get_args()).arg("--no-announce");
    command.uid(NOBODY).gid(NOBODY).stderr(terminal.slave);
    let _keepwatch = Killed(command.spawn().unwrap());
    let line = read_line(File::from(terminal.master));
    assert!(line.contains("standard error: no right to this terminal"), "{line}");
}
