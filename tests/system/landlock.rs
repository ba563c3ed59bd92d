//! The rules for files that the daemon and the process that runs conntrackd put themselves under.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use keepwatch::sys::landlock::{Ruleset, access};
use lab::files::Directory;
use libtest_mimic::Trial;
use nix::libc::{self, ENOENT};
use nix::sys::prctl;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getppid};

pub fn trials() -> Vec<Trial> {
    lab::trials![files, others, rules_for_what_is_not_there]
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

fn rules_for_what_is_not_there() {
    let allow = |path: &str, access| ruleset().allow(Path::new(path), access).map_err(|e| e.0);
    assert_eq!(allow("/nowhere", access::EXECUTE), Err(ENOENT));
    assert_eq!(allow("/proc/self/exe", access::EXECUTE), Ok(()));
    assert_eq!(allow("/proc/self/exe", access::MAKE_REG), Err(libc::EINVAL));
}
