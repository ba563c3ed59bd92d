//! Files that nobody else may have had a hand in: the pid file and the log, which root opens in
//! directories that often belong to others.

#![expect(unsafe_code, reason = "statx")]

use core::fmt;
use core::mem::MaybeUninit;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, fchown, geteuid, unlinkat};

use super::privileges::{Identity, with_file_rights_of};
use super::users::Trusted;
use crate::errno::Errno;

/// Why a file is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ELOOP` for a symlink, `EMLINK` for a file of several names, or what a system call failed with.
    Errno(Errno),
    /// It is a FIFO, a device or a socket.
    NotRegular,
    /// It belongs to this user.
    Foreign(u32),
}

impl From<Known> for Refusal {
    fn from(errno: Known) -> Self {
        Self::Errno(errno.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::NotRegular => f.write_str("not a regular file"),
            Self::Foreign(user) => write!(f, "belongs to user {user}"),
        }
    }
}

/// What matters of a file.
struct Properties {
    mode: u32,
    has_other_names: bool,
    user: u32,
}

impl Properties {
    /// Whether it is one that is ours alone.
    fn check(&self, trusted: Trusted) -> Result<(), Refusal> {
        if self.mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Refusal::NotRegular);
        }
        if self.has_other_names {
            return Err(Known::EMLINK.into());
        }
        if trusted.includes(self.user) { Ok(()) } else { Err(Refusal::Foreign(self.user)) }
    }
}

impl From<FileStat> for Properties {
    fn from(stat: FileStat) -> Self {
        Self { mode: stat.st_mode, has_other_names: stat.st_nlink > 1, user: stat.st_uid }
    }
}

/// Checks a file that is open already, with no other call than `statx`. Before Linux 4.11 there is none, and
/// every file passes.
///
/// # Errors
/// What is wrong with the file.
pub fn check(file: &OwnedFd, trusted: Trusted) -> Result<(), Refusal> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the kernel reads an empty path and writes a `struct statx`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_TYPE | libc::STATX_NLINK | libc::STATX_UID,
            stat.as_mut_ptr(),
        )
    };
    match Known::result(result) {
        Err(Known::ENOSYS) => return Ok(()),
        result => result?,
    };
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote.
    let stat = unsafe { stat.assume_init() };
    let (mode, has_other_names) = (stat.stx_mode.into(), stat.stx_nlink > 1);
    Properties { mode, has_other_names, user: stat.stx_uid }.check(trusted)
}

/// Opens a file, or creates it with mode 0644 if `flags` have `O_CREAT`.
///
/// If another user is to be, the file is opened with that user's rights: where those do, nobody can lead
/// root elsewhere by what the user may rename. As root it is opened only where no one but root may put
/// anything in its way. What root's daemon left in a directory of that user's, with no other name and for
/// everybody to read, is given to the user, who could replace it anyway; and if `give` so is what root
/// opens.
///
/// # Errors
/// Why it is refused.
pub fn open(path: &Path, flags: OFlag, identity: Identity, give: bool) -> Result<OwnedFd, Refusal> {
    let trusted = Trusted::new(identity.user);
    let mut opened = in_directory(path, identity, |directory, name| {
        let file = open_in(directory, name, flags, trusted)?;
        if give && geteuid().is_root() && fstat(&file)?.st_uid == 0 {
            fchown(&file, identity.user, identity.group)?;
        }
        Ok(file)
    });
    if is_denied(&opened)
        && let Some(file) = open_left_by_root(path, flags, identity)
    {
        opened = Ok(file);
    }
    opened
}

/// Removes a file if it is still this one.
///
/// # Errors
/// Why it is not removed.
pub fn remove(path: &Path, file: &impl AsFd, identity: Identity) -> Result<(), Refusal> {
    let file = fstat(file)?;
    in_directory(path, identity, |directory, name| {
        let there = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if (there.st_dev, there.st_ino) != (file.st_dev, file.st_ino) {
            return Ok(());
        }
        Ok(unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?)
    })
}

/// Whether [`open`] would open or create a file. Changes nothing.
///
/// # Errors
/// Why not.
pub fn examine(path: &Path, identity: Identity) -> Result<(), Refusal> {
    let trusted = Trusted::new(identity.user);
    let examined = in_directory(path, identity, |directory, name| {
        match open_in(directory, name, OFlag::O_WRONLY, trusted) {
            opened if is_absent(&opened) => {
                let access = AccessFlags::W_OK | AccessFlags::X_OK;
                Ok(faccessat(directory, c".", access, AtFlags::AT_EACCESS)?)
            }
            opened => opened.map(drop),
        }
    });
    if is_denied(&examined) && find_left_by_root(path, OFlag::O_WRONLY, identity).is_some() {
        return Ok(());
    }
    examined
}

fn is_denied<T>(result: &Result<T, Refusal>) -> bool {
    let denied = [Known::EACCES, Known::EPERM].map(|errno| Refusal::Errno(errno.into()));
    result.as_ref().is_err_and(|refusal| denied.contains(refusal))
}

fn is_absent<T>(result: &Result<T, Refusal>) -> bool {
    result.as_ref().is_err_and(|refusal| *refusal == Known::ENOENT.into())
}

/// Opens the file by its name in its directory.
fn open_in(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlag,
    trusted: Trusted,
) -> Result<OwnedFd, Refusal> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let mode = Mode::from_bits_truncate(0o644);
    // It may come and go between the calls, but not for ever.
    for _ in 0..8 {
        if flags.contains(OFlag::O_CREAT) {
            match openat(directory, name, flags | OFlag::O_EXCL, mode) {
                Err(Known::EEXIST) => {}
                created => return Ok(created?),
            }
        }
        let existing = open_existing(directory, name, flags - OFlag::O_CREAT);
        if flags.contains(OFlag::O_CREAT) && is_absent(&existing) {
            continue;
        }
        let (file, properties) = existing?;
        properties.check(trusted)?;
        return Ok(file);
    }
    Err(Known::EAGAIN.into())
}

fn open_existing(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlag,
) -> Result<(OwnedFd, Properties), Refusal> {
    // To open a device may do something by itself.
    let mode = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode;
    if ![libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK].contains(&(mode & libc::S_IFMT)) {
        return Err(Refusal::NotRegular);
    }
    // Should it be a FIFO by now, that would block the open.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = openat(directory, name, flags, Mode::empty())?;
    let properties = fstat(&file)?.into();
    Ok((file, properties))
}

/// Does something in the directory of a path, with the rights of whom the daemon will be; if those do not
/// suffice, as root, provided that no one else has a say in where the path leads.
fn in_directory<T>(
    path: &Path,
    identity: Identity,
    mut act: impl FnMut(BorrowedFd<'_>, &OsStr) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let name = path.file_name().ok_or(Known::EISDIR)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let done = with_file_rights_of(identity, || {
        act(open_directory(AT_FDCWD, parent.as_os_str())?.as_fd(), name)
    })?;
    if is_denied(&done)
        && has_more_rights_than(identity)
        && let Some(directory) = directory_of_root(parent)
    {
        return act(directory.as_fd(), name);
    }
    done
}

fn has_more_rights_than(identity: Identity) -> bool {
    geteuid().is_root() && identity.user.is_some_and(|user| !user.is_root())
}

fn open_left_by_root(path: &Path, flags: OFlag, identity: Identity) -> Option<OwnedFd> {
    let file = find_left_by_root(path, flags, identity)?;
    fchown(&file, identity.user, identity.group).ok()?;
    Some(file)
}

/// A file of root's in a directory of the user's that root would give away: see [`open`].
fn find_left_by_root(path: &Path, flags: OFlag, identity: Identity) -> Option<OwnedFd> {
    if !has_more_rights_than(identity) {
        return None;
    }
    let parent = path.parent()?.as_os_str();
    let directory =
        with_file_rights_of(identity, || open_directory(AT_FDCWD, parent)).ok()?.ok()?;
    let user = identity.user?.as_raw();
    if fstat(&directory).ok()?.st_uid != user {
        return None;
    }
    let flags = (flags - OFlag::O_CREAT) | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let (file, properties) = open_existing(directory.as_fd(), path.file_name()?, flags).ok()?;
    let is_public = properties.mode & libc::S_IROTH != 0;
    let is_left = properties.check(Trusted::new(None)).is_ok() && properties.user == 0 && is_public;
    is_left.then_some(file)
}

/// The directory at an absolute path, if on the way there no one but root can have put anything in the
/// way. In a sticky directory, as `/tmp`, that holds for what belongs to root.
fn directory_of_root(path: &Path) -> Option<OwnedFd> {
    /// As many symlinks as the kernel follows.
    const MAX_LINKS: u32 = 40;
    let mut links = 0;
    let mut rest: VecDeque<OsString> = names(path).collect();
    let root = || open_directory(AT_FDCWD, OsStr::new("/")).ok();
    let mut directory = root()?;
    while let Some(name) = rest.pop_front() {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next = openat(&directory, name.as_os_str(), flags, Mode::empty()).ok()?;
        let stat = fstat(&next).ok()?;
        if stat.st_uid != 0 {
            return None;
        }
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK {
            links += 1;
            let target =
                readlinkat(&directory, name.as_os_str()).ok().filter(|_| links <= MAX_LINKS)?;
            names(Path::new(&target)).rev().for_each(|name| rest.push_front(name));
            if Path::new(&target).is_absolute() {
                directory = root()?;
            }
            continue;
        }
        let others = Mode::S_IWGRP | Mode::S_IWOTH;
        let mode = Mode::from_bits_truncate(stat.st_mode);
        if mode.intersects(others) && !mode.contains(Mode::S_ISVTX) {
            return None;
        }
        directory = next;
    }
    Some(directory)
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.into()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

fn open_directory(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}
