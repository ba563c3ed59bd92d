//! Network namespaces: enters one, and finds the path by which its deletion shows.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{FileStat, fstat, fstatat, lstat, stat};

use super::files::c_path;
use crate::errno::Errno;
use crate::sys::files::is_same;
use crate::sys::netns::NamespaceWatch;

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

/// Watches the namespace of this process by its `given` path, else by its name. Returns `None` without either.
pub(super) fn watch(given: Option<&Path>, file: FileStat) -> Option<NamespaceWatch> {
    let is_here = |path: &PathBuf| stat(path).is_ok_and(|found| is_same(&found, &file));
    // `/proc/PID/ns/net` is a link without a path, and `/proc/PID/root` leads into another mount namespace.
    let path = given.and_then(|path| fs::canonicalize(path).ok()).filter(is_here);
    let find_name = || named().find_map(|(found, path)| is_same(&found, &file).then_some(path));
    if let Some(path) = path.or_else(find_name) {
        let mounts = File::open("/proc/self/mountinfo").ok();
        return Some(NamespaceWatch { directory: None, path: c_path(&path).ok()?, file, mounts });
    }
    let given = given?;
    let target = fs::read_link(given).ok().filter(|target| target.is_absolute());
    let path = target.as_deref().unwrap_or(given);
    // Later, without its rights, root may not be able to pass `/proc/PID/root`.
    let path_alone = || {
        let directory = path.parent().and_then(|directory| open_place(directory).ok());
        let name = path.file_name().filter(|_| directory.is_some()).map_or(path, Path::new);
        Some(NamespaceWatch { directory, path: c_path(name).ok()?, file, mounts: None })
    };
    watch_process(path).or_else(path_alone)
}

/// Opens a directory to look at what is in it.
fn open_place(directory: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)
}

/// Watches `/proc/PID/net/dev`, another file in each namespace, as `/proc/PID/ns/net` needs the right to trace PID.
fn watch_process(path: &Path) -> Option<NamespaceWatch> {
    let process = path.to_str()?.strip_suffix("/ns/net")?;
    let (directory, path) = (open_place(format!("{process}/net").as_ref()).ok()?, c"dev");
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
