//! Promise 16: the rules for files that the daemon and the process that runs conntrackd put themselves under.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use keepwatch::sys::landlock::{Ruleset, access};
use lab::daemon::Setup;
use lab::files::{Directory, Watch, content};
use lab::old_kernel::{refused_call, without_call};
use lab::trial::with_other_users;
use lab::users::NOBODY;
use libtest_mimic::Trial;
use nix::libc::{self, ENOENT};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use crate::privileges::setup_of_nobody;
use crate::world::{World, setup};

pub fn trials() -> Vec<Trial> {
    let mut trials = lab::trials![
        files,
        others,
        rules_for_what_is_not_there,
        no_landlock,
        landlock_that_is_not_to_be_had,
        log_elsewhere_is_opened_anew,
        conf_dir_that_is_a_link,
    ];
    trials.extend(with_other_users(lab::trials![log_of_nobody_is_opened_anew]));
    trials
}

/// The kernel that the tests want.
fn ruleset() -> Ruleset {
    Ruleset::new().unwrap().expect("a kernel with Landlock")
}

/// In a thread, which alone is restricted.
fn restricted(ruleset: Ruleset, test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            prctl::set_no_new_privs().unwrap();
            ruleset.enforce().unwrap();
            test();
        });
        thread.join().unwrap();
    });
}

fn denied<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

fn files() {
    let (directory, other) = (Directory::new(), Directory::new());
    let (file, precious) = (directory.path().join("file"), other.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    let ruleset = ruleset();
    ruleset.allow(directory.path(), access::MAKE_REG | access::WRITE_FILE).unwrap();
    restricted(ruleset, || {
        OpenOptions::new().write(true).create_new(true).open(&file).unwrap();
        denied(File::open(&file));
        denied(fs::remove_file(&file));
        denied(fs::create_dir(directory.path().join("sub")));
        denied(OpenOptions::new().append(true).open(&precious));
        denied(File::create(other.path().join("new")));
        denied(fs::read("/etc/passwd"));
        // Where something is may be asked, and that is no right to it.
        let path = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&precious);
        assert!(path.is_ok() && fs::metadata(&precious).is_ok());
    });
}

/// Sockets and processes of others, which are no files.
fn others() {
    let name = SocketAddr::from_abstract_name("keepwatch-landlock").unwrap();
    let _listener = UnixListener::bind_addr(&name).unwrap();
    restricted(ruleset(), || {
        denied(TcpListener::bind("127.0.0.1:0"));
        denied(UnixStream::connect_addr(&name));
        let killed = |pid: Pid| kill(pid, None).map_err(io::Error::from);
        denied(killed(getppid()));
        killed(Pid::this()).unwrap();
    });
}

fn no_landlock() {
    let world = World::with(setup().with("--no-landlock").with("--no-seccomp"));
    let keepwatch = world.setup.start();
    keepwatch.wait_log("Notified agent router", 1);
    assert!(!world.setup.log().contains("Landlock"));
}

/// Neither an old kernel nor a container that does not know it keeps the daemon from its work.
fn landlock_that_is_not_to_be_had() {
    for refuse in [without_call, refused_call] {
        let world = World::new();
        let mut command = world.setup.command();
        refuse(&mut command, libc::SYS_landlock_create_ruleset);
        let keepwatch = world.setup.adopt(&command.output().unwrap());
        keepwatch.wait_log("this kernel has no Landlock", 1);
        world.set_vip(true);
        keepwatch.wait_state("master");
    }
}

/// Both as it is moved away alone, and as something else makes the new one.
fn opens_anew(setup: Setup, logs: &Path) {
    let log = logs.join("log");
    let world = World::with(setup.with(format!("--log-file={}", log.display())));
    let keepwatch = world.setup.daemonize();
    let files = Watch::new(logs);
    let wait = |text: &str| {
        let said = || world.setup.log_in(&log).contains(text).then_some(());
        files.until(text, said);
    };
    wait("agent ");
    for (n, made) in [false, true].into_iter().enumerate() {
        fs::rename(&log, logs.join(format!("log.{n}"))).unwrap();
        if made {
            let owner = fs::metadata(logs).unwrap().uid();
            chown(File::create(&log).map(|_| &log).unwrap(), Some(owner), None).unwrap();
        }
        keepwatch.signal(Signal::SIGHUP);
        wait("SIGHUP: resynchronising");
    }
}

fn log_elsewhere_is_opened_anew() {
    let logs = Directory::new();
    opens_anew(setup(), logs.path());
}

fn log_of_nobody_is_opened_anew() {
    let logs = Directory::new();
    chown(logs.path(), Some(NOBODY), None).unwrap();
    opens_anew(setup_of_nobody(), logs.path());
}

/// The directory itself is elsewhere, and is followed there.
fn conf_dir_that_is_a_link() {
    let elsewhere = Directory::new();
    let there = elsewhere.sub("there");
    let mut setup = setup();
    let link = setup.directory().join("link");
    symlink(&there, &link).unwrap();
    setup.conf_dir = link;
    let log = format!("--log-file={}", setup.directory().join("log").display());
    let world = World::with(setup.with(log));
    let _keepwatch = world.setup.start();
    world.agent.wait_acknowledged("backup");
    fs::remove_dir_all(&there).unwrap();
    fs::create_dir(&there).unwrap();
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    assert_eq!(content(&there.join("state")), "master");
}

fn rules_for_what_is_not_there() {
    let allow = |path: &str, access| ruleset().allow(Path::new(path), access).map_err(|e| e.0);
    assert_eq!(allow("/nowhere", access::WRITE_FILE), Err(ENOENT));
    assert_eq!(allow("/proc/self/exe", access::WRITE_FILE), Ok(()));
    assert_eq!(allow("/proc/self/exe", access::MAKE_REG), Err(libc::EINVAL));
}
