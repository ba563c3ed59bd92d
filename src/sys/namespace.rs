//! Network namespaces: entering one, and noticing that it has been deleted.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;

use super::file::{Identity, identify, identify_at};
use crate::errno::Errno;

/// Where `ip netns` keeps named namespaces. These are mostly the same.
const RUN_DIRS: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// The most symlinks that lead to one another, as the kernel has it.
const MAX_LINKS: usize = 40;

/// The file that stands for a namespace, given by its name or by an absolute path.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    let [run_dir, _] = RUN_DIRS;
    Path::new(run_dir).join(namespace)
}

/// Moves the process into the network namespace that `path` stands for, and tells which one that is.
///
/// # Errors
/// `ENOENT` if there is none, `EPERM` without `CAP_SYS_ADMIN` in both, `EINVAL` if the file stands
/// for something else.
pub fn enter(path: &Path) -> Result<Identity, Errno> {
    // A FIFO is not waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = open(path, flags, Mode::empty())?;
    let identity = identify_at(&file, c"", AtFlags::AT_EMPTY_PATH)?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(identity)
}

/// The network namespace that the process is in.
///
/// # Errors
/// The errno of looking at it.
pub fn present() -> Result<Identity, Errno> {
    identify(c"/proc/self/ns/net")
}

/// Looks whether there is still something that keeps the namespace alive beside the daemon itself. No
/// event inside tells of its end: as long as the daemon is in it, it lives on, unreachable for everybody
/// else.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// Where the path begins, unless it is absolute.
    directory: Option<OwnedFd>,
    path: CString,
    /// What is at the path as long as the namespace is there.
    identity: Identity,
    /// Reports an exceptional condition when anything is mounted or unmounted, and thus when a name is
    /// deleted, whoever does that. None: nothing tells.
    mounts: Option<File>,
}

impl NamespaceWatch {
    /// Watches the namespace that the process is in, by the path it was `given` by. A path that is not
    /// a mount point itself says little: if the namespace has a name, that is watched in its place. None
    /// if the present namespace has no name that could be deleted.
    pub fn new(given: Option<&Path>, identity: Identity) -> Option<Self> {
        if let Some(name) = given.filter(|path| is_mount(path, identity)) {
            return Self::mounted(name, identity);
        }
        if let Some(name) = find_name(identity) {
            return Self::mounted(&name, identity);
        }
        let path = resolve(given?);
        let own = Path::new("/proc").join(std::process::id().to_string());
        if [Path::new("/proc/self"), Path::new("/proc/thread-self"), &own]
            .iter()
            .any(|own| path.starts_with(own))
        {
            return None;
        }
        Self::process(&path).or_else(|| {
            Some(Self { directory: None, path: c_path(&path)?, identity, mounts: None })
        })
    }

    fn mounted(name: &Path, identity: Identity) -> Option<Self> {
        let mounts = File::open("/proc/self/mountinfo").ok();
        Some(Self { directory: None, path: c_path(name)?, identity, mounts })
    }

    /// Watches whether a process is in the namespace, which `/proc/PID/ns/net` stands for. That file is
    /// not for everybody to see, and the daemon gives up being somebody for whom it is; but each
    /// namespace has a `/proc/PID/net/dev` of its own.
    fn process(path: &Path) -> Option<Self> {
        let process = path.parent().filter(|_| path.ends_with("ns/net"))?.parent()?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(&process.join("net"), flags, Mode::empty()).ok()?;
        let file = c"dev";
        let identity = identify_at(&directory, file, AtFlags::empty()).ok()?;
        // Another `/proc` has another device, but the same inodes.
        let inside = identify(c"/proc/self/net/dev").is_ok_and(|own| own.inode == identity.inode);
        let watch = Self { directory: Some(directory), path: file.into(), identity, mounts: None };
        inside.then_some(watch)
    }

    /// What reports an exceptional condition when the namespace may have been deleted. None: nothing
    /// tells.
    pub fn fd(&self) -> Option<RawFd> {
        self.mounts.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the path stands for nothing any more, or for another namespace.
    ///
    /// # Errors
    /// The errno of looking at it, if that does not tell.
    pub fn is_gone(&self) -> Result<bool, Errno> {
        let directory = self.directory.as_ref().map_or(AT_FDCWD, AsFd::as_fd);
        match identify_at(directory, &self.path, AtFlags::empty()) {
            Ok(identity) => Ok(identity != self.identity),
            Err(Errno(errno)) => match Known::from_raw(errno) {
                Known::ENOENT | Known::ENOTDIR | Known::ESRCH => Ok(true),
                _ => Err(Errno(errno)),
            },
        }
    }
}

/// Whether the namespace is mounted there: a symlink to it does not count.
fn is_mount(path: &Path, identity: Identity) -> bool {
    let look = |path: CString| identify_at(AT_FDCWD, &path, AtFlags::AT_SYMLINK_NOFOLLOW);
    c_path(path).is_some_and(|path| look(path) == Ok(identity))
}

/// The path of a name that the namespace has.
fn find_name(identity: Identity) -> Option<PathBuf> {
    let entries = RUN_DIRS.iter().flat_map(fs::read_dir).flatten().flatten();
    entries.map(|entry| entry.path()).find(|path| is_mount(path, identity))
}

/// Follows symlinks, but for the one in `/proc/PID/ns`, which leads to no path.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) if !target.as_os_str().as_bytes().starts_with(b"net:") => {
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            _ => break,
        }
    }
    path
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
