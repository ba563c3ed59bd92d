//! Files that nobody else may have had a hand in: the pid file and the log, which root opens in
//! directories that often belong to others.

#![expect(unsafe_code, reason = "statx")]

use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlink};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, lstat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, fchown, geteuid, unlinkat};

use super::constants::NO_PATH;
use super::privileges::{RunAs, with_file_rights_of};
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

impl From<NixErrno> for Refusal {
    fn from(errno: NixErrno) -> Self {
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
pub fn open(path: &Path, flags: OFlag, identity: RunAs, give: bool) -> Result<OwnedFd, Refusal> {
    let trusted = Trusted::new(identity.user);
    let opened =
        with_rights_for(path, identity, &mut |path| open_checked(path, flags, trusted).map(Some));
    let (file, give) = match opened {
        Err(refusal) if is_denied(refusal) => {
            (find_left_by_root(path, flags, identity).ok_or(refusal)?, true)
        }
        opened => (opened?.ok_or(NixErrno::EINVAL)?, give),
    };
    if give && geteuid().is_root() && fstat(&file)?.st_uid == 0 {
        fchown(&file, identity.user, identity.group)?;
    }
    Ok(file)
}

/// Removes a file if it is still this one.
///
/// # Errors
/// Why it is not removed.
pub fn remove(path: &Path, file: &OwnedFd, identity: RunAs) -> Result<(), Refusal> {
    with_rights_for(path, identity, &mut |path| {
        if is_at(path, file) {
            unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(None)
    })
    .map(drop)
}

/// Whether this is the file at the path.
pub fn is_at(path: &CStr, file: &OwnedFd) -> bool {
    let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
    lstat(path).map(identity) == fstat(file).map(identity)
}

/// Whether [`open`] would open or create a file. Changes nothing.
///
/// # Errors
/// Why not.
pub fn examine(path: &Path, identity: RunAs) -> Result<(), Refusal> {
    let (flags, trusted) = (OFlag::O_WRONLY, Trusted::new(identity.user));
    let parent = nul_terminated(path.parent().unwrap_or(Path::new("/")))?;
    let examined =
        with_rights_for(path, identity, &mut |path| match open_checked(path, flags, trusted) {
            Err(refusal) if refusal == NixErrno::ENOENT.into() => {
                let access = AccessFlags::W_OK | AccessFlags::X_OK;
                faccessat(AT_FDCWD, parent.as_c_str(), access, AtFlags::AT_EACCESS)?;
                Ok(None)
            }
            opened => opened.map(Some),
        });
    match examined {
        Err(refusal) if is_denied(refusal) => {
            find_left_by_root(path, flags, identity).map(drop).ok_or(refusal)
        }
        examined => examined.map(drop),
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
            NO_PATH.as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_TYPE | libc::STATX_NLINK | libc::STATX_UID,
            stat.as_mut_ptr(),
        )
    };
    match NixErrno::result(result) {
        Err(NixErrno::ENOSYS) => return Ok(()),
        result => result?,
    };
    // SAFETY: all zeroes are a valid value, and so is what the kernel wrote.
    let stat = unsafe { stat.assume_init() };
    check_properties(stat.stx_mode.into(), stat.stx_nlink > 1, stat.stx_uid, trusted)
}

fn check_properties(
    mode: u32,
    has_other_names: bool,
    user: u32,
    trusted: Trusted,
) -> Result<(), Refusal> {
    if mode & libc::S_IFMT != libc::S_IFREG {
        Err(Refusal::NotRegular)
    } else if has_other_names {
        Err(NixErrno::EMLINK.into())
    } else if trusted.includes(user) {
        Ok(())
    } else {
        Err(Refusal::Foreign(user))
    }
}

fn is_denied(refusal: Refusal) -> bool {
    let denied = [NixErrno::EACCES, NixErrno::EPERM].map(|errno| Errno(errno as i32));
    matches!(refusal, Refusal::Errno(errno) if denied.contains(&errno))
}

fn open_checked(path: &CStr, flags: OFlag, trusted: Trusted) -> Result<OwnedFd, Refusal> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    // It may come and go between the calls, but not for ever.
    for _ in 0..8 {
        if flags.contains(OFlag::O_CREAT) {
            let mode = Mode::from_bits_truncate(0o644);
            match openat(AT_FDCWD, path, flags | OFlag::O_EXCL, mode) {
                Err(NixErrno::EEXIST) => {}
                created => return Ok(created?),
            }
        }
        // To open a device may do something by itself.
        let opened =
            lstat(path).map(|stat| stat.st_mode & libc::S_IFMT).and_then(|kind| match kind {
                libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK => {
                    // Should it be a FIFO by now, that would block the open.
                    let flags = (flags - OFlag::O_CREAT) | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
                    openat(AT_FDCWD, path, flags, Mode::empty()).map(Some)
                }
                _ => Ok(None),
            });
        match opened {
            Err(NixErrno::ENOENT) if flags.contains(OFlag::O_CREAT) => {}
            opened => {
                let file = opened?.ok_or(Refusal::NotRegular)?;
                let stat = fstat(&file)?;
                check_properties(stat.st_mode, stat.st_nlink > 1, stat.st_uid, trusted)?;
                return Ok(file);
            }
        }
    }
    Err(NixErrno::EAGAIN.into())
}

/// Does something with the rights of whom the daemon will be; if those do not suffice, as root, provided
/// that no one else has a say in where the path leads.
fn with_rights_for(
    path: &Path,
    identity: RunAs,
    act: &mut dyn FnMut(&CStr) -> Result<Option<OwnedFd>, Refusal>,
) -> Result<Option<OwnedFd>, Refusal> {
    let name = path.file_name().ok_or(NixErrno::EISDIR)?;
    let c_path = nul_terminated(path)?;
    let mut done = Ok(None);
    with_file_rights_of(identity, &mut || done = act(&c_path))?;
    if done.as_ref().is_err_and(|refusal| is_denied(*refusal))
        && has_more_rights_than(identity)
        && let Some(directory) = roots_alone(path.parent().unwrap_or(path).into())
    {
        return act(nul_terminated(&directory.join(name))?.as_c_str());
    }
    done
}

#[inline(never)]
fn nul_terminated(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NixErrno::EINVAL)
}

fn has_more_rights_than(identity: RunAs) -> bool {
    geteuid().is_root() && identity.user.is_some_and(|user| !user.is_root())
}

/// A file of root's in a directory of the user's that root would give away: see [`open`].
fn find_left_by_root(path: &Path, flags: OFlag, identity: RunAs) -> Option<OwnedFd> {
    if !has_more_rights_than(identity) {
        return None;
    }
    let (name, parent) =
        (nul_terminated(path.file_name()?.as_ref()).ok()?, nul_terminated(path.parent()?).ok()?);
    let in_place = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut opened = None;
    with_file_rights_of(identity, &mut || {
        opened = openat(AT_FDCWD, parent.as_c_str(), in_place, Mode::empty()).ok();
    })
    .ok()?;
    let directory = opened?;
    if Some(fstat(&directory).ok()?.st_uid) != identity.user.map(nix::unistd::Uid::as_raw) {
        return None;
    }
    let safely = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file =
        openat(&directory, name.as_c_str(), (flags - OFlag::O_CREAT) | safely, Mode::empty())
            .ok()?;
    let stat = fstat(&file).ok()?;
    let is_whole = stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 1;
    let is_public = stat.st_mode & libc::S_IROTH != 0;
    (is_whole && is_public && stat.st_uid == 0).then_some(file)
}

/// Where an absolute path to a directory leads, if no one but root can have put anything in the way. In a
/// sticky directory, as `/tmp`, that holds for what belongs to root.
fn roots_alone(mut path: PathBuf) -> Option<PathBuf> {
    // As many symlinks as the kernel follows.
    for _ in 0..40 {
        let mut directory = PathBuf::from("/");
        let mut rest = path.components();
        loop {
            let Some(name) = rest.next() else { return Some(directory) };
            let next = directory.join(name);
            let c_next = nul_terminated(&next).ok()?;
            let stat = lstat(c_next.as_c_str()).ok()?;
            let others_write = stat.st_mode & (libc::S_IWGRP | libc::S_IWOTH) != 0;
            let is_link = stat.st_mode & libc::S_IFMT == libc::S_IFLNK;
            let is_sticky = stat.st_mode & libc::S_ISVTX != 0;
            if stat.st_uid != 0 || (others_write && !is_sticky && !is_link) {
                return None;
            }
            if is_link {
                directory.push(readlink(c_next.as_c_str()).ok()?);
                directory.push(rest.as_path());
                path = directory;
                break;
            }
            directory = next;
        }
    }
    None
}
