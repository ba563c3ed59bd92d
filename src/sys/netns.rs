//! Network namespaces: entering one and noticing its deletion.

#![expect(unsafe_code, reason = "getdents64")]

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;

use super::constants::{Constant, Constants};
use super::file_id::{FileId, identify, identify_at, identify_open};
use super::files::{c_path, c_string, read_link};
use crate::errno::Errno;

/// Where `ip netns` keeps named namespaces. Mostly the second is a symlink to the first.
const RUN_DIRS: [&CStr; 2] = [c"/run/netns", c"/var/run/netns"];

/// The file of a namespace that is given by name or by an absolute path.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    let [run_dir, _] = RUN_DIRS;
    Path::new(OsStr::from_bytes(run_dir.to_bytes())).join(namespace)
}

/// Moves the process into the network namespace whose file is at `path`. Returns its identity.
///
/// # Errors
/// `ENOENT` if there is no file, `EPERM` without `CAP_SYS_ADMIN` in both namespaces, `EINVAL` if the file is no
/// network namespace.
pub fn enter(path: &Path) -> Result<FileId, Errno> {
    // Does not wait for the writer of a FIFO.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = open(c_path(path)?.as_c_str(), flags, Mode::empty())?;
    let identity = identify_open(&file)?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(identity)
}

/// The network namespace that the process is in.
///
/// # Errors
/// The errno of `fstatat`.
pub fn present() -> Result<FileId, Errno> {
    identify(c"/proc/self/ns/net")
}

/// Checks whether the namespace has been deleted: whether nothing but the daemon keeps it alive. No event inside
/// tells that, as the namespace lives on, unreachable for others, while the daemon is in it.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// What a relative path is relative to.
    directory: Option<OwnedFd>,
    path: &'static CStr,
    /// The file that is at the path until the namespace is deleted.
    identity: FileId,
    /// `/proc/self/mountinfo`, which reports an exceptional condition on each mount and unmount, and so when a
    /// name is deleted. `None`: no event reports deletion.
    mounts: Option<OwnedFd>,
}

impl NamespaceWatch {
    /// Watches the namespace that the process is in, by the path it was `given` by. If that is no mount point
    /// (a symlink, a process's file) and the namespace has a name, that is watched instead. Returns `None` for
    /// the present namespace if it has no name.
    pub fn new(given: Option<&Path>, identity: FileId, constants: &mut Constants) -> Option<Self> {
        let given = given.and_then(|path| c_path(path).ok());
        let name = match &given {
            Some(path) if is_mount(AT_FDCWD, path, identity) => Some((None, path.clone())),
            _ => find_name(identity),
        };
        if let Some((directory, path)) = name {
            let path = keep(&path, constants)?;
            let mounts = open_for(c"/proc/self/mountinfo", OFlag::O_RDONLY);
            return Some(Self { directory, path, identity, mounts });
        }
        let path = follow(given?);
        let is_own = |own: &[u8]| path.to_bytes().starts_with(own);
        if is_own(b"/proc/self/") || is_own(b"/proc/thread-self/") {
            return None;
        }
        if let Some((directory, identity)) = process(&path) {
            let path = keep(PROCESS_FILE, constants)?;
            return Some(Self { directory: Some(directory), path, identity, mounts: None });
        }
        let path = keep(&path, constants)?;
        Some(Self { directory: None, path, identity, mounts: None })
    }

    /// Reports an exceptional condition when the namespace may have been deleted. `None`: nothing does.
    pub fn fd(&self) -> Option<RawFd> {
        self.mounts.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the path is gone or leads to another namespace.
    ///
    /// # Errors
    /// The errno of `fstatat`, if it leaves that open.
    pub fn is_gone(&self) -> Result<bool, Errno> {
        let directory = self.directory.as_ref().map_or(AT_FDCWD, AsFd::as_fd);
        match identify_at(directory, self.path, AtFlags::empty()) {
            Ok(identity) => Ok(identity != self.identity),
            Err(Errno(errno)) => match NixErrno::from_raw(errno) {
                NixErrno::ENOENT | NixErrno::ENOTDIR | NixErrno::ESRCH => Ok(true),
                _ => Err(Errno(errno)),
            },
        }
    }
}

/// The file in the directory that [`process`] returns.
const PROCESS_FILE: &CStr = c"dev";

/// For a path `/proc/PID/ns/net`: the directory `/proc/PID/net`, and the identity of `dev` in it, which differs
/// between namespaces. Unlike the path itself, it can be examined without privileges.
fn process(path: &CStr) -> Option<(OwnedFd, FileId)> {
    let net = [path.to_bytes().strip_suffix(b"ns/net")?, b"net"].concat();
    let directory = open_for(&c_string(&net).ok()?, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
    let identity = identify_at(directory.as_fd(), PROCESS_FILE, AtFlags::empty()).ok()?;
    // Another mount of /proc has another device, but the same inodes.
    let inside = identify(c"/proc/self/net/dev").is_ok_and(|own| own.inode == identity.inode);
    inside.then_some((directory, identity))
}

fn keep(path: &CStr, constants: &mut Constants) -> Option<&'static CStr> {
    constants.path(Constant::Namespace, Path::new(OsStr::from_bytes(path.to_bytes()))).ok()
}

/// Whether the namespace is mounted at this path. A symlink to it does not count.
fn is_mount(directory: BorrowedFd<'_>, path: &CStr, identity: FileId) -> bool {
    identify_at(directory, path, AtFlags::AT_SYMLINK_NOFOLLOW) == Ok(identity)
}

/// A name of the namespace, with the directory it is in.
fn find_name(identity: FileId) -> Option<(Option<OwnedFd>, CString)> {
    RUN_DIRS.iter().find_map(|run_dir| {
        let directory = open_for(run_dir, OFlag::O_DIRECTORY)?;
        let is_name = |name: &CStr| is_mount(directory.as_fd(), name, identity);
        let name = find_entry(&directory, &is_name)?;
        Some((Some(directory), name))
    })
}

/// The first name in a directory for which `is_wanted`. libc's `readdir` would cost 1 kB.
fn find_entry(directory: &OwnedFd, is_wanted: &dyn Fn(&CStr) -> bool) -> Option<CString> {
    /// Offsets of length and name in `struct linux_dirent64` (`include/linux/dirent.h`).
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0_u64; 128];
    loop {
        let (fd, entries) = (directory.as_raw_fd(), buffer.as_mut_ptr());
        // SAFETY: the kernel writes no more than the buffer's size.
        let read =
            unsafe { libc::syscall(libc::SYS_getdents64, fd, entries, size_of_val(&buffer)) };
        let read = usize::try_from(read).ok().filter(|read| *read > 0)?;
        // SAFETY: the bytes lie in the buffer, which is initialised.
        let bytes = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), read) };
        let mut rest = bytes;
        while let Some((length, _)) = rest.get(LENGTH..).and_then(|rest| rest.split_first_chunk()) {
            let (entry, behind) = rest.split_at_checked(u16::from_ne_bytes(*length).into())?;
            let name = CStr::from_bytes_until_nul(entry.get(NAME..)?).ok()?;
            if is_wanted(name) {
                return Some(name.into());
            }
            rest = behind;
        }
    }
}

fn open_for(path: &CStr, flags: OFlag) -> Option<OwnedFd> {
    open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).ok()
}

/// The target of a symlink, which may lead to a file of a process; else the path.
fn follow(path: CString) -> CString {
    // The link in `/proc/PID/ns` has no path for a target.
    match read_link(&path) {
        Ok(target) if target.to_bytes().starts_with(b"/") => target,
        _ => path,
    }
}
