//! Network namespaces: entering one and noticing its deletion.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{FileStat, fstat, fstatat, lstat, stat};

use super::files::{c_path, is_same};
use crate::errno::Errno;

/// Where `ip netns` keeps named namespaces. Mostly the second is a symlink to the first.
const RUN_DIRS: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// The file of a namespace that is given by name or by an absolute path.
pub fn path(namespace: &str) -> PathBuf {
    let [run_dir, _] = RUN_DIRS;
    Path::new(run_dir).join(namespace)
}

/// Moves the process into the network namespace whose file is at `path`. Returns the file's status.
///
/// `ENOENT` if there is no file, `EPERM` without `CAP_SYS_ADMIN` in both namespaces, `EINVAL` if the file is no
/// network namespace.
pub fn enter(path: &Path) -> Result<FileStat, Errno> {
    // Does not wait for the writer of a FIFO.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let entered = fstat(&file)?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(entered)
}

/// The network namespace that the process is in. `None` without `/proc`.
pub fn present() -> Option<FileStat> {
    stat("/proc/self/ns/net").ok()
}

/// Checks whether the namespace has been deleted: whether nothing but the daemon keeps it alive. No event inside
/// reports that, as the namespace lives on, unreachable for others, while the daemon is in it.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// What a relative path is relative to.
    directory: Option<File>,
    path: CString,
    /// The file that is at the path until the namespace is deleted.
    file: FileStat,
    /// `/proc/self/mountinfo`, which reports an exceptional condition on each mount and unmount, and so when a
    /// name is deleted. `None`: no event reports deletion.
    mounts: Option<File>,
}

impl NamespaceWatch {
    /// Watches the namespace that the process is in by the path it was `given` by, else by its name. Returns `None`
    /// if it was not given and has no name.
    pub fn new(given: Option<&Path>, file: FileStat) -> Option<Self> {
        // The files of processes are links without a path.
        let mount = given.and_then(|path| fs::canonicalize(path).ok());
        if let Some(path) = mount.or_else(|| find_name(&file)) {
            let mounts = File::open("/proc/self/mountinfo").ok();
            return Some(Self { directory: None, path: c_path(&path).ok()?, file, mounts });
        }
        let given = given?;
        let target = fs::read_link(given).ok().filter(|target| target.is_absolute());
        let path = target.as_deref().unwrap_or(given);
        let path_alone =
            || Some(Self { directory: None, path: c_path(path).ok()?, file, mounts: None });
        watch_process(path).or_else(path_alone)
    }

    /// Reports an exceptional condition when the namespace may have been deleted. `None`: nothing does.
    pub fn fd(&self) -> Option<RawFd> {
        self.mounts.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the path is gone or leads to another namespace. The errno of `fstatat`, if it leaves that open.
    pub fn is_gone(&self) -> Result<bool, Errno> {
        let directory = self.directory.as_ref().map_or(AT_FDCWD, AsFd::as_fd);
        match fstatat(directory, &*self.path, AtFlags::empty()) {
            Ok(file) => Ok(!is_same(&file, &self.file)),
            Err(NixErrno::ENOENT | NixErrno::ENOTDIR | NixErrno::ESRCH) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// For `/proc/PID/ns/net`, which only who may trace the process can follow: `/proc/PID/net/dev`, which everybody can
/// look at once the directory is open, and which is another file in each namespace.
fn watch_process(path: &Path) -> Option<NamespaceWatch> {
    let process = path.to_str()?.strip_suffix("/ns/net")?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let directory = File::options().read(true).custom_flags(flags).open(format!("{process}/net"));
    let (directory, path) = (directory.ok()?, c"dev");
    let file = fstatat(&directory, path, AtFlags::empty()).ok()?;
    Some(NamespaceWatch { directory: Some(directory), path: path.into(), file, mounts: None })
}

/// A name of the namespace, if it has one.
pub fn find_name(namespace: &FileStat) -> Option<PathBuf> {
    let entries = RUN_DIRS.iter().filter_map(|run_dir| fs::read_dir(run_dir).ok()).flatten();
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| lstat(path).is_ok_and(|file| is_same(&file, namespace)))
}
