//! Promise 16: what somebody can do who has taken over the running daemon, as root and as nobody. The daemon
//! itself is made to make the system calls.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use lab::daemon::{Running, Setup};
use lab::files::{Directory, content};
use lab::inject::Argument::{self, Bytes, Number};
use lab::old_kernel::without_call;
use lab::trial::with_other_users;
use libtest_mimic::Trial;
use nix::libc::{self, c_int, c_long};

use crate::privileges::setup_of_nobody;
use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        files_as_root,
        files_as_root_without_landlock,
        files_as_root_without_seccomp,
        sockets,
        filters_of_sockets,
        filter_of_the_packet_socket_is_locked,
        processes_and_memory,
        constants_are_read_only,
        what_it_does_itself,
    ];
    trials.extend(with_other_users(lab::trials![
        files_as_nobody,
        files_as_nobody_without_landlock,
        files_as_nobody_without_seccomp,
    ]));
    trials
}

/// What must not be possible: a call, and its arguments.
struct Attack<'a> {
    name: &'static str,
    call: c_long,
    arguments: Vec<Argument<'a>>,
}

fn attack<'a>(name: &'static str, call: c_long, arguments: &[Argument<'a>]) -> Attack<'a> {
    Attack { name, call, arguments: arguments.into() }
}

fn int(value: c_int) -> Argument<'static> {
    Number(value.into())
}

const HERE: Argument<'_> = Number(libc::AT_FDCWD as i64);
const MODE: Argument<'_> = Number(0o644);
/// As for the state file and the log.
const CREATE: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
const APPEND: c_int = libc::O_WRONLY
    | libc::O_APPEND
    | libc::O_CREAT
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NONBLOCK
    | libc::O_NOCTTY;

/// Paths that end with a NUL, as system calls want them.
struct Targets {
    /// Outside of everything that the daemon has to do with, and open to everybody.
    elsewhere: Directory,
    state: CString,
    precious: CString,
    new: CString,
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn open_to_everybody(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}

impl Targets {
    fn new(setup: &Setup) -> Self {
        let elsewhere = Directory::new();
        let path = |name: &str| elsewhere.path().join(name);
        fs::write(path("precious"), "precious").unwrap();
        open_to_everybody(elsewhere.path());
        open_to_everybody(&path("precious"));
        Self {
            state: c_string(&setup.state_file()),
            precious: c_string(&path("precious")),
            new: c_string(&path("new")),
            elsewhere,
        }
    }

    fn assert_untouched(&self, setup: &Setup) {
        let path = self.elsewhere.path();
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
        assert_eq!(content(&path.join("precious")), "precious");
        assert!(!Path::new("/etc/cron.d/keepwatch-attack").exists());
        assert!(setup.state_file().exists());
    }
}

fn on_files(targets: &Targets) -> Vec<Attack<'_>> {
    let open =
        |name, path, flags| attack(name, libc::SYS_openat, &[HERE, Bytes(path), int(flags), MODE]);
    let [state, precious, new] =
        [&targets.state, &targets.precious, &targets.new].map(CString::as_bytes_with_nul);
    vec![
        open("read the passwords", b"/etc/shadow\0", libc::O_RDONLY),
        open("have cores dumped into it", b"/proc/sys/kernel/core_pattern\0", libc::O_WRONLY),
        open("name the machine", b"/proc/sys/kernel/hostname\0", APPEND),
        open("have cron run it", b"/etc/cron.d/keepwatch-attack\0", CREATE),
        open("append, as to the log", precious, APPEND),
        open("create, as the state file", new, CREATE),
        open("read", precious, libc::O_RDONLY),
        open("truncate", precious, libc::O_WRONLY | libc::O_TRUNC),
        attack(
            "rename out of conf_dir",
            libc::SYS_renameat,
            &[HERE, Bytes(state), HERE, Bytes(new)],
        ),
        attack("remove", libc::SYS_unlinkat, &[HERE, Bytes(precious), int(0)]),
    ]
}

/// A world whose agent everybody may connect to.
fn world(setup: Setup) -> World {
    let world = World::with(setup);
    open_to_everybody(&agent_socket(&world.setup));
    world
}

fn agent_socket(setup: &Setup) -> PathBuf {
    setup.state_path.join("keepalived-state-change")
}

fn wait_quiet(keepwatch: &Running<'_>) {
    keepwatch.wait_log("Notified agent router", 1);
    keepwatch.wait_asleep();
}

/// Each has a daemon of its own, which it is the end of.
fn assert_trapped(
    setup: impl Fn() -> Setup,
    has_landlock: bool,
    attacks: impl Fn(&Targets) -> Vec<Attack<'_>>,
) {
    let count = attacks(&Targets::new(&setup())).len();
    for n in 0..count {
        let world = world(setup());
        let targets = Targets::new(&world.setup);
        let Attack { name, call, arguments } = attacks(&targets).swap_remove(n);
        let mut command = world.setup.command();
        if !has_landlock {
            without_call(&mut command, libc::SYS_landlock_create_ruleset);
        }
        let keepwatch = world.setup.adopt(&command.output().unwrap());
        wait_quiet(&keepwatch);
        assert_eq!(world.setup.log().contains("no Landlock"), !has_landlock);
        assert_eq!(keepwatch.make_call(call, &arguments), None, "{name}");
        keepwatch.wait_exit();
        assert_last_words(&world.setup, call);
        targets.assert_untouched(&world.setup);
    }
}

/// What a signal handler says is text, whatever the rest of the log is.
fn assert_last_words(setup: &Setup, call: c_long) {
    let log = fs::read(setup.log_file()).unwrap();
    let line = format!("keepwatch: ERROR: seccomp: system call {call} is not allowed; ending\n");
    assert!(log.windows(line.len()).any(|part| part == line.as_bytes()), "{line}");
}

/// They fail, and the daemon goes on.
fn assert_denied(setup: Setup) {
    let world = world(setup.with("--no-seccomp"));
    let targets = Targets::new(&world.setup);
    let keepwatch = world.setup.daemonize();
    for Attack { name, call, arguments } in on_files(&targets) {
        wait_quiet(&keepwatch);
        let result = keepwatch.make_call(call, &arguments);
        assert_eq!(result, Some(-i64::from(libc::EACCES)), "{name}");
    }
    targets.assert_untouched(&world.setup);
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
}

fn files_as_root() {
    assert_trapped(setup, true, on_files);
}

fn files_as_root_without_landlock() {
    assert_trapped(setup, false, on_files);
}

fn files_as_root_without_seccomp() {
    assert_denied(setup());
}

fn files_as_nobody() {
    assert_trapped(setup_of_nobody, true, on_files);
}

fn files_as_nobody_without_landlock() {
    assert_trapped(setup_of_nobody, false, on_files);
}

fn files_as_nobody_without_seccomp() {
    assert_denied(setup_of_nobody());
}

/// New ones of other kinds, and connections to others than the agent: a daemon that is root would be heard
/// by D-Bus or a container engine.
fn sockets() {
    let socket = |name, domain, kind, protocol| {
        attack(name, libc::SYS_socket, &[int(domain), int(kind), int(protocol)])
    };
    assert_trapped(setup, true, |_| {
        vec![
            socket("to the network", libc::AF_INET, libc::SOCK_STREAM, 0),
            socket("to the wire", libc::AF_PACKET, libc::SOCK_RAW, 0),
            socket("to the kernel", libc::AF_NETLINK, libc::SOCK_RAW, 0),
            socket("datagrams to anybody", libc::AF_UNIX, libc::SOCK_DGRAM, 0),
            socket("blocking", libc::AF_UNIX, libc::SOCK_STREAM, 0),
            attack("a pair", libc::SYS_socketpair, &[int(libc::AF_UNIX), int(1), int(0)]),
        ]
    });
    let other = Directory::new();
    let path = other.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let address = [&libc::AF_UNIX.to_ne_bytes()[..2], path.as_os_str().as_bytes(), b"\0"].concat();
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    for send in [false, true] {
        let world = world(setup());
        let keepwatch = world.setup.daemonize();
        wait_quiet(&keepwatch);
        let fd = keepwatch.make_call(libc::SYS_socket, &[int(libc::AF_UNIX), int(flags), int(0)]);
        let fd = Number(fd.expect("a socket as to the agent"));
        let (to, length) = (Bytes(&address), Number(address.len().try_into().unwrap()));
        let result = if send {
            let arguments = [fd, Bytes(b"x"), int(1), int(0), to, length];
            keepwatch.make_call(libc::SYS_sendto, &arguments)
        } else {
            keepwatch.make_call(libc::SYS_connect, &[fd, to, length])
        };
        assert_eq!(result, None, "{send}");
        keepwatch.wait_exit();
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody has connected");
}

/// The descriptor of the one socket of this kind.
fn socket_of(keepwatch: &Running<'_>, protocol_file: &str) -> i64 {
    let pid = keepwatch.pid();
    let table = content(Path::new(&format!("/proc/{pid}/net/{protocol_file}")));
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let fd = fds.map(|entry| entry.unwrap()).find(|entry| {
        let target = fs::read_link(entry.path()).unwrap();
        let inode =
            target.to_str().unwrap().strip_prefix("socket:[").map(|rest| &rest[..rest.len() - 1]);
        inode.is_some_and(|inode| table.split_whitespace().any(|word| word == inode))
    });
    fd.expect("the socket").file_name().to_str().unwrap().parse().unwrap()
}

fn option(fd: i64, option: c_int) -> [Argument<'static>; 5] {
    // A program of no instructions is refused by whoever looks at it.
    [Number(fd), int(libc::SOL_SOCKET), int(option), Bytes(&[0; 16]), int(16)]
}

/// What the packet socket hears stays what it is, as do other options.
fn filters_of_sockets() {
    let probe = |file: &'static str, name| {
        let world = world(setup());
        let keepwatch = world.setup.daemonize();
        wait_quiet(&keepwatch);
        let fd = socket_of(&keepwatch, file);
        keepwatch.make_call(libc::SYS_setsockopt, &option(fd, name))
    };
    // The daemon exchanges the filter of the route socket itself.
    assert_eq!(probe("netlink", libc::SO_ATTACH_FILTER), Some(-i64::from(libc::EINVAL)));
    assert_eq!(probe("netlink", libc::SO_RCVBUF), None);
    for option in [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER, libc::SO_ATTACH_BPF] {
        assert_eq!(probe("packet", option), None);
    }
}

/// Whatever the filter for system calls says.
fn filter_of_the_packet_socket_is_locked() {
    let world = world(setup().with("--no-seccomp"));
    let keepwatch = world.setup.daemonize();
    wait_quiet(&keepwatch);
    let fd = socket_of(&keepwatch, "packet");
    for name in [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER, libc::SO_LOCK_FILTER] {
        let result = keepwatch.make_call(libc::SYS_setsockopt, &option(fd, name));
        assert_eq!(result, Some(-i64::from(libc::EPERM)), "{name}");
        wait_quiet(&keepwatch);
    }
}

fn processes_and_memory() {
    assert_trapped(setup, true, |_| {
        let page = Number(0x1000);
        let all = int(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        vec![
            attack("another process", libc::SYS_clone, &[int(libc::SIGCHLD)]),
            attack("another program", libc::SYS_execve, &[Bytes(b"/bin/sh\0")]),
            attack("signals", libc::SYS_kill, &[int(-1), int(libc::SIGKILL)]),
            attack("into others", libc::SYS_ptrace, &[Number(libc::PTRACE_ATTACH.into()), int(1)]),
            attack("memory to run", libc::SYS_mmap, &[int(0), page, all]),
            attack("writable constants", libc::SYS_mprotect, &[int(0), page, all]),
            attack("no constants", libc::SYS_munmap, &[int(0), page]),
            attack("name the machine", libc::SYS_sethostname, &[Bytes(b"x"), int(1)]),
            attack("another descriptor", libc::SYS_dup2, &[int(1), int(2)]),
            attack("another still", libc::SYS_fcntl, &[int(1), int(libc::F_DUPFD), int(2)]),
            attack("no lock", libc::SYS_flock, &[int(1), int(libc::LOCK_UN)]),
            attack("more room", libc::SYS_prctl, &[int(libc::PR_SET_DUMPABLE), int(1)]),
        ]
    });
}

/// What the filter compares addresses with.
fn constants_are_read_only() {
    let world = world(setup());
    let keepwatch = world.setup.start();
    wait_quiet(&keepwatch);
    let [_, address, ..] = keepwatch.arguments_of_next(libc::SYS_connect, || world.set_vip(true));
    let maps = content(Path::new(&format!("/proc/{}/maps", keepwatch.pid())));
    let number = |digits| u64::from_str_radix(digits, 16).unwrap();
    let mapping = maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        (number(start)..number(rest.split(' ').next().unwrap())).contains(&address)
    });
    assert_eq!(mapping.unwrap().split(' ').nth(1), Some("r--p"), "{maps}");
    world.agent.wait_acknowledged("master");
}

/// A call that it makes itself is not in its way, so that the others are told apart by their arguments.
fn what_it_does_itself() {
    let world = world(setup());
    let keepwatch = world.setup.daemonize();
    wait_quiet(&keepwatch);
    let [dir, path, flags, mode, ..] =
        keepwatch.arguments_of_next(libc::SYS_openat, || world.set_vip(true));
    world.agent.wait_acknowledged("master");
    wait_quiet(&keepwatch);
    let number = |value: u64| Number(value.cast_signed());
    let own = [number(dir), number(path), number(flags), number(mode)];
    assert!(keepwatch.make_call(libc::SYS_openat, &own).is_some_and(|fd| fd > 2));
    wait_quiet(&keepwatch);
    let set_user_id = [own[0], own[1], own[2], Number(0o4755)];
    assert_eq!(keepwatch.make_call(libc::SYS_openat, &set_user_id), None);
    keepwatch.wait_exit();
    assert_last_words(&world.setup, libc::SYS_openat);
}
