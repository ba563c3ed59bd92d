//! Notices the deletion of a network namespace.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FileStat, fstatat};

use super::files::is_same;
use crate::errno::Errno;

/// Detects the deletion of the namespace. No event inside reports it, as the daemon's own sockets keep it alive.
#[derive(Debug)]
pub struct NamespaceWatch {
    /// The base of a relative path.
    pub(crate) directory: Option<File>,
    pub(crate) path: CString,
    /// The file that is at the path until the namespace is deleted.
    pub(crate) file: FileStat,
    /// `/proc/self/mountinfo`, which reports each mount and unmount, such as the deletion of a name.
    pub(crate) mounts: Option<File>,
}

impl NamespaceWatch {
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
