//! Promise 16: what somebody can do who has taken over the running daemon, as root and as nobody. The daemon
//! itself is made to make the system calls.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lab::daemon::{Running, Setup};
use lab::files::{Directory, content};
use lab::inject::Argument::{self, Bytes, Number};
use nix::libc::{self, EACCES, EPERM, c_int, c_long};

use crate::privileges::setup_of_nobody;
use crate::world::{World, setup};

fn int(value: c_int) -> Argument<'static> {
    Number(value.into())
}

fn wait_quiet(keepwatch: &Running<'_>) {
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_asleep();
}

#[apply(trial)]
fn files_of_others() {
    assert_files_denied(setup());
}

#[apply(trial_with_other_users)]
fn files_of_others_as_nobody() {
    assert_files_denied(setup_of_nobody());
}

/// Landlock denies them, though everybody may write to some of them, and the daemon goes on.
fn assert_files_denied(setup: Setup) {
    const HERE: Argument<'_> = Number(libc::AT_FDCWD as i64);
    let open_to_everybody =
        |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let elsewhere = Directory::new();
    open_to_everybody(elsewhere.path(), 0o777);
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    open_to_everybody(&precious, 0o666);
    let world = World::with(setup);
    let keepwatch = world.setup.daemonize();

    let c_path = |path: &Path| format!("{}\0", path.display()).into_bytes();
    let (precious_path, new) = (c_path(&precious), c_path(&elsewhere.path().join("new")));
    let state = c_path(&world.setup.state_file());
    let create = libc::O_WRONLY | libc::O_CREAT;
    let opened: [(&[u8], c_int); 8] = [
        (b"/etc/shadow\0", libc::O_RDONLY),
        (b"/proc/sys/kernel/core_pattern\0", libc::O_WRONLY),
        (b"/etc/cron.d/keepwatch-attack\0", create),
        (&precious_path, libc::O_RDONLY),
        (&precious_path, libc::O_WRONLY | libc::O_TRUNC),
        (&precious_path, libc::O_WRONLY | libc::O_APPEND),
        (&new, create),
        (&state, libc::O_RDONLY),
    ];
    let open = |(path, flags)| (libc::SYS_openat, [HERE, Bytes(path), int(flags), Number(0o644)]);
    let mut attacks: Vec<_> = opened.map(open).into();
    attacks.push((libc::SYS_renameat, [HERE, Bytes(&state), HERE, Bytes(&new)]));
    attacks.push((libc::SYS_unlinkat, [HERE, Bytes(&precious_path), int(0), int(0)]));
    for (n, (call, arguments)) in attacks.into_iter().enumerate() {
        wait_quiet(&keepwatch);
        assert_eq!(keepwatch.make_call(call, &arguments), Some(-i64::from(EACCES)), "attack {n}");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    assert_eq!(content(&precious), "precious");
    world.tell(true);
}

/// Each kills the daemon, at which nothing has been done yet, by SIGSYS: so whoever supervises it knows why.
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
        (libc::SYS_setsockopt, vec![int(3), int(libc::SOL_SOCKET), int(libc::SO_ATTACH_BPF)]),
        (libc::SYS_ioctl, vec![int(0), Number(libc::TIOCSTI.cast_signed()), Bytes(b"x")]),
        (libc::SYS_symlinkat, vec![Bytes(b"/etc\0"), int(libc::AT_FDCWD), Bytes(b"/tmp/x\0")]),
    ];
    for (call, arguments) in attacks {
        let world = World::new();
        let keepwatch = world.setup.daemonize();
        wait_quiet(&keepwatch);
        assert_eq!(keepwatch.make_call(call, &arguments), None, "{call} {arguments:?}");
        keepwatch.wait_exit();
        assert_eq!(world.setup.state(), "backup");
    }
}

/// What the packet socket receives stays what it is.
#[apply(trial)]
fn filter_is_locked() {
    let world = World::new();
    let keepwatch = world.setup.daemonize();
    wait_quiet(&keepwatch);
    let fd = packet_socket(keepwatch.pid());
    for name in [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER] {
        // The kernel looks at the length of the program only.
        let option = [fd, int(libc::SOL_SOCKET), int(name), Bytes(&[0; 16]), int(16)];
        let result = keepwatch.make_call(libc::SYS_setsockopt, &option);
        assert_eq!(result, Some(-i64::from(EPERM)), "{name}");
        wait_quiet(&keepwatch);
    }
}

/// The number of a process's one packet socket.
fn packet_socket(pid: u32) -> Argument<'static> {
    let table = content(Path::new(&format!("/proc/{pid}/net/packet")));
    let inode = table.lines().last().unwrap().split_whitespace().last().unwrap();
    let name = format!("socket:[{inode}]");
    let mut fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let fd = fds.find(|fd| fs::read_link(fd.path()).unwrap().as_os_str() == &*name).unwrap();
    Number(fd.file_name().to_str().unwrap().parse().unwrap())
}
