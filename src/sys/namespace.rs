//! Network namespaces: entering one, and noticing that it has been deleted.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as Known;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;
use nix::unistd::read;

use super::file::{Identity, identify};
use crate::errno::Errno;

/// Where `ip netns` keeps named namespaces.
const RUN_DIR: &str = "/run/netns";

/// The file that stands for a namespace, given by its name or by an absolute path.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    Path::new(RUN_DIR).join(namespace)
}

/// Moves the process into the network namespace that `path` stands for.
///
/// # Errors
/// `ENOENT` if there is none, `EPERM` without `CAP_SYS_ADMIN` in both, `EINVAL` if the file stands
/// for something else.
pub fn enter(path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

/// Watches the directory in which a namespace has its name. No event inside a namespace tells that it
/// has been deleted: as long as the daemon is in it, it lives on, unreachable for everybody else.
#[derive(Debug)]
pub struct NamespaceWatch {
    path: CString,
    identity: Identity,
    /// None if there are as many in use as the system allows, which for hundreds of daemons it may not.
    deletions: Option<Inotify>,
}

impl NamespaceWatch {
    /// Remembers which namespace has this name.
    ///
    /// # Errors
    /// The errno of looking at it.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Known::EINVAL)?;
        let identity = identify(&c_path)?;
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let deletions = Inotify::init(flags).and_then(|inotify| {
            inotify
                .add_watch(directory, AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM)?;
            Ok(inotify)
        });
        Ok(Self { path: c_path, identity, deletions: deletions.ok() })
    }

    /// What becomes readable when something in the directory is deleted. None: nothing tells.
    pub fn fd(&self) -> Option<RawFd> {
        self.deletions.as_ref().map(|deletions| deletions.as_fd().as_raw_fd())
    }

    /// Whether the name stands for nothing any more, or for another namespace.
    pub fn is_gone(&self) -> bool {
        // It matters that there were events, not which.
        let mut events = [0; 1024];
        while self.deletions.as_ref().is_some_and(|fd| read(fd, &mut events).is_ok()) {}
        match identify(&self.path) {
            Ok(identity) => identity != self.identity,
            Err(errno) => errno == Errno::from(Known::ENOENT),
        }
    }
}
