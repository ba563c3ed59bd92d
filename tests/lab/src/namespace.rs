//! Namespaces, without root where the kernel allows that.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

use crate::files::read_line;
use crate::log::in_thread;

/// Moves the process into new network and mount namespaces with an empty `/run/netns`. Without root, or if `LAB` is
/// `userns`, also into a new user namespace.
///
/// Call it before the process has a second thread.
pub fn enter() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let private = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    if uid.is_root() && env::var_os("LAB").is_none_or(|lab| lab != "userns") {
        unshare(private)?;
    } else {
        unshare(private | CloneFlags::CLONE_NEWUSER)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    // Without write access to /run, a new file system covers it.
    if fs::create_dir_all("/run/netns").is_err() || !geteuid().is_root() {
        mount_tmpfs(Path::new("/run"))?;
        fs::create_dir_all("/run/netns")?;
    }
    mount_tmpfs(Path::new("/run/netns"))
}

/// Gives the calling thread and its children a `/dev` that contains only `null`.
pub fn enter_empty_dev() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let (null, keep) = (Path::new("/dev/null"), Path::new("/run/netns/null"));
    fs::write(keep, "")?;
    mount_over(keep, null)?;
    mount_tmpfs(Path::new("/dev"))?;
    fs::write(null, "")?;
    mount_over(null, keep)
}

/// Mounts an empty tmpfs over a directory.
pub fn mount_tmpfs(directory: &Path) -> io::Result<()> {
    mount_tmpfs_with(directory, MsFlags::empty(), "")
}

/// Mounts one with flags and with options such as `size=64k`, or changes it.
pub fn mount_tmpfs_with(directory: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    Ok(mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(options))?)
}

/// Mounts a file or a directory over another.
pub fn mount_over(path: &Path, from: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    Ok(mount(Some(from), path, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?)
}

/// A network namespace.
#[derive(Debug)]
pub struct Netns(OwnedFd);

impl Netns {
    /// Creates an empty one. The caller does not enter it.
    pub fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace");
            Self::current()
        });
        made.join().expect("a thread in a new network namespace")
    }

    /// Returns the calling thread's.
    pub fn current() -> Self {
        Self(fs::File::open("/proc/thread-self/ns/net").expect("the thread's namespace").into())
    }

    /// Returns the one with this name, as [`bind`](Self::bind) takes it.
    pub fn named(name: &str) -> Self {
        Self(fs::File::open(path(name)).expect("a namespace of that name").into())
    }

    /// Moves the calling thread and its future children into it.
    pub fn enter(&self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("to enter the namespace");
    }

    /// Runs a function inside.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let outside = Self::current();
        self.enter();
        let result = f();
        outside.enter();
        result
    }

    /// Gives it a name under `/run/netns`, as `ip netns add` does, or an absolute path.
    pub fn bind(&self, name: &str) {
        let path = path(name);
        fs::write(&path, "").expect("a file to bind to");
        self.run(|| mount_over(&path, Path::new("/proc/thread-self/ns/net")))
            .expect("to bind the namespace");
    }
}

/// Removes the name, as `ip netns delete` does.
pub fn unbind(name: &str) {
    umount2(&path(name), MntFlags::MNT_DETACH).expect("a namespace to unmount");
    fs::remove_file(path(name)).expect("a file to remove");
}

/// Removes the name in a new mount namespace. Here, the unmount shows only where mounts are shared; elsewhere only the
/// file is removed.
pub fn unbind_elsewhere(name: &str) {
    let name = name.to_owned();
    let unbinding = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("a new mount namespace");
        unbind(&name);
    });
    unbinding.join().expect("a thread in a new mount namespace");
}

/// A PID namespace, whose processes end on drop.
#[derive(Debug)]
pub struct Pids(Child);

impl Pids {
    pub fn new() -> Self {
        // The shell's first child is process 1 of the namespace.
        let mut command = Command::new("sh");
        command.args(["-c", "(echo up; exec cat); :"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: nothing but a system call.
        unsafe { command.pre_exec(|| Ok(unshare(CloneFlags::CLONE_NEWPID)?)) };
        let mut shell = command.spawn().expect("a shell");
        assert_eq!(read_line(shell.stdout.as_mut().expect("its output")), "up\n");
        Self(shell)
    }

    /// Runs a function whose child processes start inside.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/pid_for_children", self.0.id());
        let namespace = fs::File::open(path).expect("a PID namespace");
        in_thread(|| {
            setns(namespace, CloneFlags::CLONE_NEWPID).expect("to enter the PID namespace");
            f()
        })
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
