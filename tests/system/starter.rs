//! Set-ups that starters leave behind: signals, descriptors, capabilities and limits. Signals during the start.

#![expect(unsafe_code, reason = "system calls between fork and exec")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lab::daemon::{Running, Setup, children, proc_status, send, wait_end};
use lab::files::{Watch, look};
use lab::namespace::mount_tmpfs_with;
use lab::old_kernel::without_call;
use lab::users::{NOBODY, has_others};
use nix::libc;
use nix::mount::MsFlags;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};

use crate::scripted::{helper, hooked, tracked};
use crate::world::{Killed, World, setup};

/// Makes the starter ignore SIGCHLD and block every signal, as some do by mistake.
pub fn careless(command: &mut Command) {
    let make = || {
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        Ok(SigSet::all().thread_set_mask()?)
    };
    // SAFETY: nothing but system calls.
    unsafe { command.pre_exec(make) };
}

#[apply(trial)]
fn starter_that_blocks_signals() {
    let world = World::new();
    let keepwatch = world.setup.daemonize_with(careless);
    assert_eq!(signals(&keepwatch, "SigBlk"), HANDLED, "blocked for signalfd");
    let ignored = [Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGXFSZ];
    assert_eq!(signals(&keepwatch, "SigIgn"), ignored);
    keepwatch.counter("transitions");
    assert!(keepwatch.terminate().is_none() && !world.setup.pid_file().exists());
}

const HANDLED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM];

/// Returns the signals in a mask of `/proc/PID/status`.
fn signals(keepwatch: &Running<'_>, field: &str) -> Vec<Signal> {
    let mask = u128::from_str_radix(&keepwatch.proc_status(field), 16).unwrap();
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}

/// Starts the program, sends it a signal right after this system call, and lets it go on.
#[cfg(target_arch = "x86_64")]
fn interrupted(setup: &Setup, how: &str, call: libc::c_long, signal: Signal) -> Child {
    let mut command = setup.command();
    command.arg("--namespace=/proc/thread-self/ns/net").arg(how).stdout(Stdio::null());
    let stopped = lab::traced::spawn_up_to(&mut command, call);
    kill(stopped.pid(), signal).unwrap();
    stopped.go_on()
}

/// The daemon handles an early signal once it is up.
#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn early_signal_waits() {
    for signal in HANDLED {
        let world = World::new();
        let mut child = interrupted(&world.setup, "--foreground", libc::SYS_setns, signal);
        if !matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
            world.agent.wait_acknowledged("backup");
            send(child.id(), Signal::SIGTERM);
        }
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{signal}");
        assert!(!world.setup.pid_file().exists());
    }
}

#[cfg(target_arch = "x86_64")]
#[apply(trial)]
fn early_signal_ends_check() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut child = interrupted(&setup(), "--check", libc::SYS_setns, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
    }
}

/// Starts a daemon that cannot write its first state. Returns the parent, which waits for it.
fn start_on_full_disk(setup: &Setup) -> Child {
    mount_tmpfs_with(&setup.conf_dir, MsFlags::empty(), "size=64k").unwrap();
    let _ = fs::write(setup.conf_dir.join("ballast"), vec![0; 65536]);
    let files = Watch::new(setup.directory());
    let log = setup.directory().join("log");
    let mut command = setup.command();
    command.arg(format!("--log-file={}", log.display())).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    files.until("a failed write", || {
        setup.log_in(&log).contains("state file not written").then_some(())
    });
    child
}

#[apply(trial)]
fn interrupted_start_leaves_no_daemon() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let setup = setup();
        let mut parent = start_on_full_disk(&setup);
        let daemon = setup.running();
        send(parent.id(), signal);
        assert_eq!(parent.wait().unwrap().signal(), Some(signal as i32));
        daemon.wait_exit();
        assert!(!setup.pid_file().exists(), "the exit was not orderly");
    }
}

#[apply(trial)]
fn sighup_to_the_parent_leaves_the_daemon() {
    let setup = setup();
    let mut parent = start_on_full_disk(&setup);
    let daemon = setup.running();
    send(parent.id(), Signal::SIGHUP);
    assert_eq!(parent.wait().unwrap().signal(), Some(Signal::SIGHUP as i32));
    fs::remove_file(setup.conf_dir.join("ballast")).unwrap();
    daemon.wait_state("backup");
}

/// logrotate sends it to every process of the program.
#[apply(trial)]
fn sigusr2_to_the_parent_ends_nothing() {
    let setup = setup();
    let mut parent = start_on_full_disk(&setup);
    let daemon = setup.running();
    send(parent.id(), Signal::SIGUSR2);
    fs::remove_file(setup.conf_dir.join("ballast")).unwrap();
    daemon.wait_state("backup");
    assert_eq!(parent.wait().unwrap().code(), Some(0));
}

/// An agent may wait without a timeout for the end of the process that it has started. That names the last failure.
#[apply(trial)]
fn parent_stops_waiting_for_the_start() {
    let setup = setup();
    let parent = start_on_full_disk(&setup);
    let remount =
        |flags| mount_tmpfs_with(&setup.conf_dir, MsFlags::MS_REMOUNT | flags, "").unwrap();
    remount(MsFlags::MS_RDONLY);
    wait_end(parent.id());
    let output = parent.wait_with_output().unwrap();
    let expected = format!(
        "keepwatch: not up yet, still trying: state file {}: Read-only file system (EROFS)\n",
        setup.state_file().display()
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!(output.status.code(), Some(0));
    let daemon = setup.running();
    remount(MsFlags::empty());
    fs::remove_file(setup.conf_dir.join("ballast")).unwrap();
    daemon.wait_state("backup");
}

/// Kernels before 5.9 have no `close_range`.
#[apply(trial)]
fn high_descriptors_are_closed() {
    let hooked = hooked(setup());
    let open = || {
        setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192)?;
        // SAFETY: a system call without pointers.
        nix::errno::Errno::result(unsafe { libc::dup2(0, 5000) })?;
        Ok(())
    };
    let keepwatch = hooked.world.setup.daemonize_with(|command| {
        // SAFETY: nothing but system calls.
        unsafe { command.pre_exec(open) };
        without_call(command, libc::SYS_close_range);
    });
    for pid in [keepwatch.pid(), helper(&keepwatch)] {
        assert!(!Path::new(&format!("/proc/{pid}/fd/5000")).is_symlink());
    }
}

/// Limits the number of a command's descriptors.
pub fn limit_descriptors(command: &mut Command, limit: u64) {
    // SAFETY: a system call.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?)) };
}

/// With a lower limit the start fails. It does not leave out a rule of Landlock, without which no state could be written.
#[apply(trial)]
fn least_descriptors() {
    let starts = (4..32).find(|&limit| {
        let world = World::new();
        world.setup.expect(&["EMFILE"]);
        let mut command = world.setup.command();
        limit_descriptors(&mut command, limit);
        let output = command.output().unwrap();
        if !output.status.success() {
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.lines().count() == 1 && error.contains("(EMFILE)"), "{limit}: {error}");
            return false;
        }
        let keepwatch = world.setup.adopt(&output);
        world.set_vip(true);
        keepwatch.wait_state("master");
        true
    });
    assert!(starts.is_some());
}

/// Starts as root that has only these capabilities and the two that the daemon needs.
fn start_with(world: &World, setpriv: &[&str], capabilities: &str, options: &[&str]) -> Output {
    let set = format!("--bounding-set=-all,+net_admin,+net_raw{capabilities}");
    let words = [&["setpriv"], setpriv, &["--inh-caps=-all", &set]].concat();
    world.setup.command_behind(&words).args(options).output().unwrap()
}

fn assert_user_is_refused(output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    // Without other users, their numbers are invalid.
    let expected = if has_others() { "(EPERM)\n" } else { "(EINVAL)\n" };
    assert!(error.contains("(CAP_SET") && error.ends_with(expected), "{error}");
}

#[apply(trial_with_other_users)]
fn user_would_keep_a_group_of_the_starter() {
    let options = ["--user=12345", "--group=0"];
    let output = start_with(&World::new(), &["--groups=4"], ",+setuid", &options);
    assert_user_is_refused(&output);
}

/// Root of a container has only the capabilities that the daemon needs.
#[apply(trial)]
fn root_with_few_capabilities() {
    let world = World::new();
    let start = |options: &[&str]| start_with(&world, &[], "", options);
    assert_user_is_refused(&start(&["--user=12345", "--group=12345"]));
    // The configuration is missing, which may or may not be logged before the end of the test.
    world.setup.expect(&["conntrackd -t: not started: configuration"]);
    let keepwatch = world.setup.adopt(&start(&["--enable_conntrackd"]));
    assert_eq!(keepwatch.proc_status("CapPrm"), "0".repeat(16));
    assert_eq!(proc_status(helper(&keepwatch), "CapPrm"), "0".repeat(16));
    world.deliver(true);
}

/// As process 1 of a container, the daemon reaps the processes that others leave behind.
#[apply(trial)]
fn process_1_reaps_orphans() {
    let world = World::new();
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = world.setup.command_behind(&unshare);
    let shell = Killed(command.arg("--foreground").spawn().unwrap());
    world.agent.wait_acknowledged("backup");
    let keepwatch = children(shell.0.id())[0];
    let mut inside = Command::new("nsenter");
    inside.args([&format!("--pid=/proc/{keepwatch}/ns/pid"), "sh", "-c", "sleep 0.01 &"]);
    assert!(inside.status().unwrap().success());
    look("an orphan to be reaped", || children(keepwatch).is_empty());
}

/// With `SECBIT_NO_SETUID_FIXUP`, a process keeps its capabilities to files after setuid (`capabilities(7)`).
#[apply(trial_with_other_users)]
fn capabilities_that_outlast_a_change_of_user() {
    let setup = setup().with("--user=nobody");
    let pid_file = setup.conf_dir.join("pid");
    let tracked = tracked(setup.with(format!("--pid_file={}", pid_file.display())));
    let setup = &tracked.world.setup;
    chown(&setup.conf_dir, Some(NOBODY), None).unwrap();
    let configuration = setup.conf_dir.join("conntrackd.conf");
    fs::set_permissions(&configuration, Permissions::from_mode(0o600)).unwrap();
    let mut command = setup.command();
    let keep = || {
        // SAFETY: a system call without pointers.
        nix::errno::Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, 1 << 2) })?;
        Ok(())
    };
    // SAFETY: nothing but a system call.
    unsafe { command.pre_exec(keep) };
    let keepwatch = Killed(command.arg("--foreground").spawn().unwrap());
    let line =
        "conntrackd -n: not started: configuration: Permission denied (EACCES), as user 65534\n";
    let files = Watch::new(&setup.conf_dir);
    files.until(line, || setup.log().contains(line).then_some(()));
    drop(keepwatch);
    assert_eq!(tracked.flags(), "");
}

#[apply(trial)]
fn log_at_its_size_limit() {
    let world = World::new();
    fs::write(world.setup.log_file(), vec![b'\n'; 8192]).unwrap();
    let limit = || Ok(setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096)?);
    // SAFETY: nothing but a system call.
    let _keepwatch = world.setup.daemonize_with(|command| unsafe { _ = command.pre_exec(limit) });
    world.deliver(true);
    assert_eq!(world.setup.state(), "master");
    assert_eq!(fs::metadata(world.setup.log_file()).unwrap().len(), 8192);
}

/// A start without `/dev/null` fails with one line, as `--check` does.
#[apply(trial)]
fn no_dev_null() {
    let setup = setup();
    let daemon: &[_] = &["--foreground", "--hook=/bin/true"];
    for (options, what) in [(&["--check"][..], ""), (&[], ""), (daemon, "hook /bin/true: ")] {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev && exec \"$0\" \"$@\""]);
        shell.arg(&setup.program).args(setup.command().get_args()).args(options);
        let output = shell.output().unwrap();
        let error = format!("keepwatch: {what}/dev/null: No such file or directory (ENOENT)\n");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), error, "{options:?}");
        assert_eq!(output.status.code(), Some(1), "{options:?}");
    }
}
