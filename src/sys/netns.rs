//! Network namespaces: entering one, and noticing that it has been deleted.

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

/// Where `ip netns` keeps named namespaces. These are mostly the same.
const RUN_DIRS: [&CStr; 2] = [c"/run/netns", c"/var/run/netns"];

/// The file that stands for a namespace, given by its name or by an absolute path.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    let [run_dir, _] = RUN_DIRS;
    Path::new(OsStr::from_bytes(run_dir.to_bytes())).join(namespace)
}

/// Moves the process into the network namespace that `path` stands for, and tells which one that is.
///
/// # Errors
/// `ENOENT` if there is none, `EPERM` without `CAP_SYS_ADMIN` in both, `EINVAL` if the file stands
/// for something else.
pub fn enter(path: &Path) -> Result<FileId, Errno> {
    // A FIFO is not waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = open(c_path(path)?.as_c_str(), flags, Mode::empty())?;
    let identity = identify_open(&file)?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(identity)
}

/// The network namespace that the process is in.
///
/// # Errors
/// The errno of looking at it.
pub fn present() -> Result<FileId, Errno> {
    identify(c"/proc/self/ns/net")
}

/// Looks whether there is still something that keeps the namespace alive beside the daemon itself. No
/// event inside tells of its end: as long as the daemon is in it, it lives on, unreachable for everybody
/// else.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// Where the path begins, unless it is absolute.
    directory: Option<OwnedFd>,
    path: &'static CStr,
    /// What is at the path as long as the namespace is there.
    identity: FileId,
    /// Reports an exceptional condition when anything is mounted or unmounted, and thus when a name is
    /// deleted, whoever does that. None: nothing tells.
    mounts: Option<OwnedFd>,
}

impl NamespaceWatch {
    /// Watches the namespace that the process is in, by the path it was `given` by. A path that is not
    /// a mount point itself says little: if the namespace has a name, that is watched in its place. None
    /// if the present namespace has no name that could be deleted.
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
        match identify_at(directory, self.path, AtFlags::empty()) {
            Ok(identity) => Ok(identity != self.identity),
            Err(Errno(errno)) => match NixErrno::from_raw(errno) {
                NixErrno::ENOENT | NixErrno::ENOTDIR | NixErrno::ESRCH => Ok(true),
                _ => Err(Errno(errno)),
            },
        }
    }
}

/// What is looked at in [`process`].
const PROCESS_FILE: &CStr = c"dev";

/// To see whether a process is still in the namespace, which `/proc/PID/ns/net` stands for. That file is
/// not for everybody to see, and the daemon gives up being somebody for whom it is; but each namespace has a
/// `/proc/PID/net/dev` of its own. Tells what that is now, and where.
fn process(path: &CStr) -> Option<(OwnedFd, FileId)> {
    let net = [path.to_bytes().strip_suffix(b"ns/net")?, b"net"].concat();
    let directory = open_for(&c_string(&net).ok()?, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
    let identity = identify_at(directory.as_fd(), PROCESS_FILE, AtFlags::empty()).ok()?;
    // Another `/proc` has another device, but the same inodes.
    let inside = identify(c"/proc/self/net/dev").is_ok_and(|own| own.inode == identity.inode);
    inside.then_some((directory, identity))
}

fn keep(path: &CStr, constants: &mut Constants) -> Option<&'static CStr> {
    constants.path(Constant::Namespace, Path::new(OsStr::from_bytes(path.to_bytes()))).ok()
}

/// Whether the namespace is mounted there: a symlink to it does not count.
fn is_mount(directory: BorrowedFd<'_>, path: &CStr, identity: FileId) -> bool {
    identify_at(directory, path, AtFlags::AT_SYMLINK_NOFOLLOW) == Ok(identity)
}

/// A name that the namespace has, and where.
fn find_name(identity: FileId) -> Option<(Option<OwnedFd>, CString)> {
    RUN_DIRS.iter().find_map(|run_dir| {
        let directory = open_for(run_dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let is_name = |name: &CStr| is_mount(directory.as_fd(), name, identity);
        let name = find_entry(&directory, &is_name)?;
        Some((Some(directory), name))
    })
}

/// The first name in a directory that is wanted.
fn find_entry(directory: &OwnedFd, is_wanted: &dyn Fn(&CStr) -> bool) -> Option<CString> {
    /// Offsets in `struct linux_dirent64` (`include/linux/dirent.h`): of the length, and of the name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0_u64; 128];
    loop {
        let (fd, entries) = (directory.as_raw_fd(), buffer.as_mut_ptr());
        // SAFETY: the kernel writes as many bytes at most.
        let read =
            unsafe { libc::syscall(libc::SYS_getdents64, fd, entries, size_of_val(&buffer)) };
        let read = usize::try_from(read).ok().filter(|read| *read > 0)?;
        // SAFETY: bytes of the buffer.
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

/// Where a symlink leads: the path of a process may have got a name by one.
fn follow(path: CString) -> CString {
    // The one in `/proc/PID/ns` leads to no path.
    match read_link(&path) {
        Ok(target) if target.to_bytes().starts_with(b"/") => target,
        _ => path,
    }
}
