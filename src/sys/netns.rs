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

/// Directories of named namespaces (`ip-netns(8)`). The second is usually a symlink to the first.
const RUN_DIRS: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// Returns the file of a namespace, given by name or absolute path.
pub fn path(namespace: &str) -> PathBuf {
    let [run_dir, _] = RUN_DIRS;
    Path::new(run_dir).join(namespace)
}

/// Moves the process into the network namespace whose file is at `path`. Returns the file's status. `EPERM` without
/// `CAP_SYS_ADMIN` in both namespaces, `EINVAL` for any other file.
pub fn enter(path: &Path) -> Result<FileStat, Errno> {
    // Opening a FIFO must not block.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let entered = fstat(&file)?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(entered)
}

/// Returns the network namespace of this process. `None` without `/proc`.
pub fn present() -> Option<FileStat> {
    stat("/proc/self/ns/net").ok()
}

/// Detects the deletion of the namespace. No event inside reports it, as the daemon's own sockets keep it alive.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// The base of a relative path.
    directory: Option<File>,
    path: CString,
    /// The file that is at the path until the namespace is deleted.
    file: FileStat,
    /// `/proc/self/mountinfo`, which reports each mount and unmount, such as the deletion of a name.
    mounts: Option<File>,
}

impl NamespaceWatch {
    /// Watches the namespace of this process by its `given` path, else by its name. Returns `None` without either.
    pub fn new(given: Option<&Path>, file: FileStat) -> Option<Self> {
        // `/proc/PID/ns/net` is a link without a path.
        let mount = given.and_then(|path| fs::canonicalize(path).ok());
        let find_name = || named().find_map(|(found, path)| is_same(&found, &file).then_some(path));
        if let Some(path) = mount.or_else(find_name) {
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

    /// Returns the descriptor that polls as exceptional at each possible deletion. `None`: no event reports a deletion.
    pub fn fd(&self) -> Option<RawFd> {
        self.mounts.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns whether the path is gone or leads to another namespace. After an error that is unknown.
    pub fn is_gone(&self) -> Result<bool, Errno> {
        let directory = self.directory.as_ref().map_or(AT_FDCWD, AsFd::as_fd);
        match fstatat(directory, &*self.path, AtFlags::empty()) {
            Ok(file) => Ok(!is_same(&file, &self.file)),
            Err(NixErrno::ENOENT | NixErrno::ENOTDIR | NixErrno::ESRCH) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Watches `/proc/PID/net/dev`, another file in each namespace, as `/proc/PID/ns/net` needs the right to trace PID.
fn watch_process(path: &Path) -> Option<NamespaceWatch> {
    let process = path.to_str()?.strip_suffix("/ns/net")?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let directory = File::options().read(true).custom_flags(flags).open(format!("{process}/net"));
    let (directory, path) = (directory.ok()?, c"dev");
    let file = fstatat(&directory, path, AtFlags::empty()).ok()?;
    Some(NamespaceWatch { directory: Some(directory), path: path.into(), file, mounts: None })
}

/// Returns the named namespaces and their paths.
pub fn named() -> impl Iterator<Item = (FileStat, PathBuf)> {
    let entries = RUN_DIRS.iter().filter_map(|run_dir| fs::read_dir(run_dir).ok()).flatten();
    entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((lstat(&path).ok()?, path))
    })
}
