//! Network namespaces: enters one, and finds the path by which its deletion shows.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{FileStat, fstat, fstatat, lstat, stat};

use super::files::{MAX_SYMLINKS, c_path};
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
    let target = given.filter(|_| path.is_none()).map(resolve);
    if let Some(watch) = target.as_deref().and_then(watch_process) {
        return Some(watch);
    }
    let find_name = || {
        let mut names = named().filter(|(found, _)| is_same(found, &file)).map(|(_, path)| path);
        let first = names.next()?;
        // The namespace outlives one of several names, and the host's any.
        let is_only = names.all(|other| other.file_name() == first.file_name());
        let is_host = stat("/proc/1/ns/net").is_ok_and(|host| is_same(&host, &file));
        (is_only && !is_host).then_some(first)
    };
    if let Some(path) = path.or_else(find_name) {
        let mounts = File::open("/proc/self/mountinfo").ok();
        return Some(NamespaceWatch { directory: None, path: c_path(&path).ok()?, file, mounts });
    }
    let path = target.as_deref()?;
    // Later, without its rights, root may not be able to pass `/proc/PID/root`.
    let directory = path.parent().and_then(|directory| open_place(directory).ok());
    let name = path.file_name().filter(|_| directory.is_some()).map_or(path, Path::new);
    Some(NamespaceWatch { directory, path: c_path(name).ok()?, file, mounts: None })
}

/// Follows links up to `/proc/PID/ns/net`, which is a link, too.
fn resolve(given: &Path) -> PathBuf {
    let mut path = given.to_owned();
    for _ in 0..MAX_SYMLINKS {
        match fs::read_link(&path) {
            Ok(target) if !path.ends_with("ns/net") => path = path.with_file_name(target),
            _ => break,
        }
    }
    path
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
