//! Safe opening of the pid file and the log file, which root opens in directories that may belong to others.

use core::ffi::CStr;
use core::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, Uid, UnlinkatFlags, faccessat, fchown, geteuid, unlinkat};

use super::file_id::{FileId, identify_link, identify_open};
use super::files::{c_path, c_string, split};
use super::privileges::{RunAs, with_file_rights_of};
use super::trust::{Trusted, resolve};
use crate::errno::Errno;

/// Why a file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ELOOP` for a symlink, `EMLINK` for a file with several hard links, or the errno of a system call.
    Errno(Errno),
    /// It is a FIFO, a device or a socket.
    NotRegular,
    /// It belongs to this user.
    Foreign(u32),
}

impl<E: Into<Errno>> From<E> for Refusal {
    fn from(errno: E) -> Self {
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

/// Flags for opening an existing file. `O_NONBLOCK`: it may have become a FIFO.
pub const SAFELY: OFlag =
    OFlag::O_CLOEXEC.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// Opens a file, or creates it with mode 0644 if `flags` have `O_CREAT`.
///
/// If the daemon will run as another user, the file is opened with that user's rights, so that the user cannot
/// make root open another file. If these do not suffice, root opens it, provided that nobody but root can
/// change the path. With `give`, a file of root's is then given to the user. So is, in any case, a
/// world-readable file without hard links that an earlier daemon left as root in the user's own directory,
/// where the user could replace it anyway.
///
/// # Errors
/// Why it is refused.
pub fn open(path: &Path, flags: OFlag, identity: RunAs, give: bool) -> Result<OwnedFd, Refusal> {
    let (path, trusted) = (c_path(path)?, Trusted::new(identity.user));
    let opened =
        with_rights_for(&path, identity, &mut |path| open_checked(path, flags, trusted).map(Some));
    let (file, give) = match opened {
        Err(refusal) if is_denied(refusal) => {
            (find_left_by_root(&path, flags, identity).ok_or(refusal)?, true)
        }
        opened => (opened?.ok_or(NixErrno::EINVAL)?, give),
    };
    if give && geteuid().is_root() && identify_open(&file)?.user == 0 {
        fchown(&file, identity.user, identity.group)?;
    }
    Ok(file)
}

/// Removes the file at `path` if it is still this one.
///
/// # Errors
/// Why it is not removed.
pub fn remove(path: &CStr, file: FileId, identity: RunAs) -> Result<(), Refusal> {
    with_rights_for(path, identity, &mut |path| {
        if identify_link(path) == Ok(file) {
            unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(None)
    })
    .map(drop)
}

/// Checks whether [`open`] would open or create a file. Changes nothing.
///
/// # Errors
/// Why not.
pub fn examine(path: &Path, identity: RunAs) -> Result<(), Refusal> {
    let (path, flags, trusted) = (c_path(path)?, OFlag::O_WRONLY, Trusted::new(identity.user));
    let examined =
        with_rights_for(&path, identity, &mut |path| match open_checked(path, flags, trusted) {
            Err(Refusal::Errno(Errno::NOT_FOUND)) => {
                let parent = c_string(split(path.to_bytes()).0)?;
                let access = AccessFlags::W_OK | AccessFlags::X_OK;
                faccessat(AT_FDCWD, parent.as_c_str(), access, AtFlags::AT_EACCESS)?;
                Ok(None)
            }
            opened => opened.map(Some),
        });
    match examined {
        Err(refusal) if is_denied(refusal) => {
            find_left_by_root(&path, flags, identity).map(drop).ok_or(refusal)
        }
        examined => examined.map(drop),
    }
}

/// Checks an open file. [`identify_open`] is its only system call.
///
/// # Errors
/// Why it is refused.
pub fn check(file: &OwnedFd, trusted: Trusted) -> Result<(), Refusal> {
    let file = identify_open(file)?;
    if file.kind() != libc::S_IFREG {
        Err(Refusal::NotRegular)
    } else if file.has_other_names {
        Err(NixErrno::EMLINK.into())
    } else if trusted.includes(file.user) {
        Ok(())
    } else {
        Err(Refusal::Foreign(file.user))
    }
}

fn is_denied(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Errno(Errno(libc::EACCES | libc::EPERM)))
}

fn open_checked(path: &CStr, flags: OFlag, trusted: Trusted) -> Result<OwnedFd, Refusal> {
    let may_create = flags.contains(OFlag::O_CREAT);
    // The file may appear or vanish between two calls, but not for ever.
    for _ in 0..8 {
        if may_create {
            let flags = flags | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            match openat(AT_FDCWD, path, flags, Mode::from_bits_truncate(0o644)) {
                Err(NixErrno::EEXIST) => {}
                created => return Ok(created?),
            }
        }
        // Even opening a device may have an effect.
        let kind = identify_link(path).map(|file| file.kind());
        let opened = match kind {
            Ok(libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK) => {
                let flags = (flags - OFlag::O_CREAT) | SAFELY;
                openat(AT_FDCWD, path, flags, Mode::empty()).map_err(Errno::from)
            }
            Ok(_) => return Err(Refusal::NotRegular),
            Err(errno) => Err(errno),
        };
        match opened {
            Err(Errno::NOT_FOUND) if may_create => {}
            opened => {
                let file = opened?;
                return check(&file, trusted).map(|()| file);
            }
        }
    }
    Err(NixErrno::EAGAIN.into())
}

/// Calls `act` with the rights of the user that the daemon will run as; if these do not suffice, as root,
/// provided that nobody else can change where the path leads.
#[inline(never)]
fn with_rights_for(
    path: &CStr,
    identity: RunAs,
    act: &mut dyn FnMut(&CStr) -> Result<Option<OwnedFd>, Refusal>,
) -> Result<Option<OwnedFd>, Refusal> {
    let mut done = Ok(None);
    with_file_rights_of(identity, &mut || done = act(path))?;
    if done.as_ref().is_err_and(|refusal| is_denied(*refusal)) && has_more_rights_than(identity) {
        let (directory, name) = split(path.to_bytes());
        if let Some(directory) = resolve(directory, &[0], true) {
            return act(&c_string(&[directory.to_bytes(), name].concat())?);
        }
    }
    done
}

fn has_more_rights_than(identity: RunAs) -> bool {
    geteuid().is_root() && identity.user.is_some_and(|user| !user.is_root())
}

/// Opens a file of root's in the user's own directory that [`open`] may give to the user.
#[inline(never)]
fn find_left_by_root(path: &CStr, flags: OFlag, identity: RunAs) -> Option<OwnedFd> {
    if !has_more_rights_than(identity) {
        return None;
    }
    let (parent, name) = split(path.to_bytes());
    let (parent, name) = (c_string(parent).ok()?, c_string(name).ok()?);
    let in_place = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut opened = None;
    with_file_rights_of(identity, &mut || {
        opened = openat(AT_FDCWD, parent.as_c_str(), in_place, Mode::empty()).ok();
    })
    .ok()?;
    let directory = opened?;
    if Some(identify_open(&directory).ok()?.user) != identity.user.map(Uid::as_raw) {
        return None;
    }
    let flags = (flags - OFlag::O_CREAT) | SAFELY;
    let file = openat(&directory, name.as_c_str(), flags, Mode::empty()).ok()?;
    let status = identify_open(&file).ok()?;
    let is_whole = status.kind() == libc::S_IFREG && !status.has_other_names;
    let is_public = status.mode & libc::S_IROTH != 0;
    (is_whole && is_public && status.user == 0).then_some(file)
}
