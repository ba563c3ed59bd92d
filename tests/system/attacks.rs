//! Promise 16: what an attacker can do who controls the running daemon, as root and as user nobody. The tests inject
//! the system calls into the daemon.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::daemon::{Running, Setup, children, proc_status, send};
use lab::files::{Directory, Watch, content, look, unread};
use lab::inject::Argument::{self, Bytes, Number};
use lab::traced::{at_call, start_as};
use lab::users::NOBODY;
use nix::libc::{self, EACCES, EPERM, c_int, c_long};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{self, MsgFlags, SockType};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::privileges::setup_of_nobody;
use crate::scripted::{hooked, wait_hook_succeeded};
use crate::world::{Killed, World, setup};

fn int(value: c_int) -> Argument<'static> {
    Number(value.into())
}

/// Starts a daemon and waits until it has nothing left to do.
fn start_quiet(world: &World) -> Running<'_> {
    let keepwatch = world.setup.daemonize();
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch
}

/// A directory that is missing below `/` gives root no rights to `/`.
#[apply(trial)]
fn files_of_others() {
    let setup = setup().with("--metrics-file=/keepwatch-missing/metrics.prom");
    setup.expect(&["metrics file not written: No such file or directory (ENOENT); retrying"]);
    assert_files_denied(setup);
}

#[apply(trial_with_other_users)]
fn files_of_others_as_nobody() {
    assert_files_denied(setup_of_nobody());
}

/// Asserts that Landlock denies files, even world-writable ones, and that the daemon goes on.
fn assert_files_denied(setup: Setup) {
    const HERE: Argument<'_> = Number(libc::AT_FDCWD as i64);
    let set_mode =
        |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let elsewhere = Directory::new();
    set_mode(elsewhere.path(), 0o777);
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    set_mode(&precious, 0o666);
    let world = World::with(setup);
    let keepwatch = start_quiet(&world);

    let c_path = |path: &Path| format!("{}\0", path.display()).into_bytes();
    let (precious_path, new) = (c_path(&precious), c_path(&elsewhere.path().join("new")));
    let state = c_path(&world.setup.state_file());
    let create = libc::O_WRONLY | libc::O_CREAT;
    let opened: [(&[u8], c_int); 7] = [
        (b"/etc/shadow\0", libc::O_RDONLY),
        (b"/proc/sys/kernel/core_pattern\0", libc::O_WRONLY),
        (b"/etc/cron.d/keepwatch-attack\0", create),
        (&precious_path, libc::O_RDONLY),
        (&precious_path, libc::O_WRONLY | libc::O_TRUNC),
        (&precious_path, libc::O_WRONLY | libc::O_APPEND),
        (&new, create),
    ];
    let open = |(path, flags)| (libc::SYS_openat, [HERE, Bytes(path), int(flags), Number(0o644)]);
    let mut attacks: Vec<_> = opened.map(open).into();
    attacks.push((libc::SYS_renameat, [HERE, Bytes(&state), HERE, Bytes(&new)]));
    attacks.push((libc::SYS_unlinkat, [HERE, Bytes(&precious_path), int(0), int(0)]));
    for (n, (call, arguments)) in attacks.into_iter().enumerate() {
        keepwatch.wait_asleep();
        assert_eq!(keepwatch.make_call(call, &arguments), Some(-i64::from(EACCES)), "attack {n}");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    assert_eq!(content(&precious), "precious");
    world.deliver(true);
}

/// Each call is prevented, and SIGSYS kills the daemon, so that its supervisor sees the reason.
#[apply(trial)]
fn other_calls() {
    let page = Number(0x1000);
    let all = int(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    let socket = |domain, kind| (libc::SYS_socket, vec![int(domain), int(kind), int(0)]);
    let attacks: Vec<(c_long, Vec<Argument<'_>>)> = vec![
        socket(libc::AF_INET, libc::SOCK_STREAM),
        socket(libc::AF_PACKET, libc::SOCK_RAW),
        socket(libc::AF_NETLINK, libc::SOCK_RAW),
        socket(libc::AF_UNIX, libc::SOCK_DGRAM),
        (libc::SYS_clone, vec![int(libc::SIGCHLD)]),
        (libc::SYS_execve, vec![Bytes(b"/bin/sh\0")]),
        (libc::SYS_kill, vec![int(-1), int(libc::SIGKILL)]),
        (libc::SYS_ptrace, vec![Number(libc::PTRACE_ATTACH.into()), int(1)]),
        (libc::SYS_mmap, vec![int(0), page, all]),
        (libc::SYS_mprotect, vec![int(0), page, all]),
        (libc::SYS_prctl, vec![int(libc::PR_SET_DUMPABLE), int(1)]),
        (libc::SYS_setsockopt, vec![int(3), int(libc::SOL_SOCKET), int(libc::SO_ATTACH_FILTER)]),
        (libc::SYS_ioctl, vec![int(0), Number(libc::TIOCSTI.cast_signed()), Bytes(b"x")]),
        (libc::SYS_utimensat, vec![int(libc::AT_FDCWD), Bytes(b"/etc/shadow\0")]),
        // Half of the pointer is zero.
        (libc::SYS_utimensat, vec![int(libc::AT_FDCWD), Number(1 << 32)]),
        (libc::SYS_symlinkat, vec![Bytes(b"/etc\0"), int(libc::AT_FDCWD), Bytes(b"/tmp/x\0")]),
    ];
    for (call, arguments) in attacks {
        let world = World::new();
        let keepwatch = start_quiet(&world);
        keepwatch.wait_asleep();
        assert_eq!(keepwatch.make_call(call, &arguments), None, "{call} {arguments:?}");
        keepwatch.wait_exit();
        assert_eq!(world.setup.state(), "backup");
    }
}

/// A call of i386 has the number of another call of x86_64, which the filter may allow.
#[apply(trial)]
fn calls_of_another_architecture() {
    let world = World::new();
    let keepwatch = start_quiet(&world);
    keepwatch.wait_asleep();
    // The number is that of `read` there.
    assert!(keepwatch.is_killed_by_i386_call(libc::SYS_close.cast_unsigned()));
    keepwatch.wait_exit();
}

/// The filter of the packet socket can be neither replaced nor removed.
#[apply(trial)]
fn filter_is_locked() {
    let world = World::with(setup().with("--no-seccomp"));
    let keepwatch = start_quiet(&world);
    let fd = packet_socket(keepwatch.pid());
    for name in [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER] {
        // The kernel checks only the length of the program.
        let option = [fd, int(libc::SOL_SOCKET), int(name), Bytes(&[0; 16]), int(16)];
        keepwatch.wait_asleep();
        let result = keepwatch.make_call(libc::SYS_setsockopt, &option);
        assert_eq!(result, Some(-i64::from(EPERM)), "{name}");
    }
}

/// Returns the descriptor of a process's only packet socket.
fn packet_socket(pid: u32) -> Argument<'static> {
    let table = content(Path::new(&format!("/proc/{pid}/net/packet")));
    let inode = table.lines().last().unwrap().split_whitespace().last().unwrap();
    let name = format!("socket:[{inode}]");
    let mut fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    // Other descriptors may be closed meanwhile.
    let is = |link: PathBuf| link.as_os_str() == &*name;
    let fd = fds.find(|fd| fs::read_link(fd.path()).is_ok_and(is)).unwrap();
    Number(fd.file_name().to_str().unwrap().parse().unwrap())
}

/// The helper is stopped between looking for the hook's processes and killing them. Meanwhile, one of these ends and a
/// process of root gets its pid.
#[apply(trial_with_other_users)]
fn reused_number_is_not_killed() {
    let hooked = hooked(setup().with("--hook-user=nobody").with("--hook-timeout=5"));
    chown(&hooked.record, Some(NOBODY), None).unwrap();
    // In the hook's session, but in a process group of its own. The helper is no parent of this process, which another
    // reaps: that has left the session.
    let script = r#"perl -MPOSIX -e '$SIG{CHLD} = "IGNORE"; $child = fork // die;
        if (!$child) { setpgrp; exec "sleep", "1000" }
        POSIX::setsid(); open(F, ">", "$RECORD/pid"); print F "$child\n"; close F; sleep while 1'"#;
    hooked.when("BACKUP", script);
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = hooked.world.setup.command_behind(&unshare);
    let shell = Killed(command.arg("--foreground").spawn().unwrap());
    let number = hooked.wait_pid("pid");
    let keepwatch = children(shell.0.id())[0];
    let helper = children(keepwatch)[0];
    let sleep = children(children(children(helper)[0])[0])[0];
    let is_kill = |call, [target, signal]: [u64; 2]| {
        let link = || fs::read_link(format!("/proc/{helper}/fd/{target}")).unwrap();
        let is = |known: c_long| call == known.cast_unsigned();
        signal == 9 && is(libc::SYS_kill) && target == u64::from(number)
            || signal == 9
                && is(libc::SYS_pidfd_send_signal)
                && link() == Path::new(&format!("/proc/{number}"))
    };
    let mut victim = None;
    at_call(Pid::from_raw(helper.cast_signed()), is_kill, || {
        send(sleep, Signal::SIGKILL);
        victim = Some(start_as(number.cast_signed(), keepwatch));
    });
    let files = Watch::new(&hooked.world.setup.conf_dir);
    let line = "hook failed for BACKUP: timed out after ";
    files.until(line, || hooked.world.setup.log().contains(line).then_some(()));
    let victim = victim.unwrap();
    let state = || proc_status(victim.as_raw().cast_unsigned(), "State");
    // A signal would wake it at once.
    look("the process to sleep or end", || state().starts_with(['S', 'Z']));
    assert!(state().starts_with('S'), "it was killed");
    kill(victim, Signal::SIGKILL).unwrap();
    waitpid(victim, None).unwrap();
}

/// A signal at each system call does not keep the daemon from its other inputs.
#[apply(trial)]
fn endless_signals() {
    let world = World::new();
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_asleep();
    let mut reads = 0;
    let sees_the_rest = |call: u64, _| {
        let is = |known: c_long| call == known.cast_unsigned();
        keepwatch.signal(Signal::SIGUSR1);
        reads += u32::from(is(libc::SYS_read));
        reads > 1000 || reads > 0 && (is(libc::SYS_epoll_wait) || is(libc::SYS_epoll_pwait))
    };
    at_call(Pid::from_raw(keepwatch.pid().cast_signed()), sees_the_rest, || ());
    assert!(reads <= 1000, "the daemon reads nothing but signals");
}

/// Code inside the daemon requests runs of the hook without a pause. At most six begin in ten seconds.
#[apply(trial)]
fn endless_runs_of_the_hook() {
    let hooked = hooked(setup());
    let keepwatch = hooked.world.setup.start();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    keepwatch.wait_asleep();
    let channel = keepwatch.socket(SockType::SeqPacket);
    // `HookRun`: MASTER, a limit of 1000 ms, not anew.
    let master = [0, 0xe8, 0x07, 0];
    let began = Instant::now();
    for _ in 0..300 {
        socket::send(channel.as_raw_fd(), &master, MsgFlags::empty()).unwrap();
        keepwatch.wait_asleep();
        look("the helper to read it", || unread(&channel) == 0);
    }
    let allowed = 6 * (1 + usize::try_from(began.elapsed().as_secs() / 10).unwrap());
    let runs = hooked.calls().iter().filter(|call| call.starts_with('+')).count();
    assert!((2..=allowed).contains(&runs), "{runs} runs, {allowed} allowed");
    // The daemon goes on: the next change has its run.
    hooked.world.set_vip(true);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
}
