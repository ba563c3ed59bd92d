//! Files that are whole or not there: the state file and the metrics file.

#![expect(unsafe_code, reason = "getrandom")]

use core::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat, write};

use super::clock;
use super::constants::{Constant, Constants};
use super::file_id::{identify, identify_open};
use super::files::{c_path, parent};
use crate::errno::Errno;

/// How the directory is opened: to make files in, whoever we are when we do.
pub const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// How the new file is. `O_EXCL`: whatever else is there under this name, be it a link or a FIFO, is not
/// opened.
pub const NEW_FILE: OFlag =
    OFlag::O_WRONLY.union(OFlag::O_CREAT).union(OFlag::O_EXCL).union(OFlag::O_CLOEXEC);

/// What a new file is called for the instant until it is renamed. It ends in a random number of each daemon's
/// own: several may write into one directory, and none may have another's file.
#[derive(Clone, Copy, Debug)]
pub struct TemporaryName(&'static CStr);

impl TemporaryName {
    /// Makes it up.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if there is no room left.
    pub fn new(constants: &mut Constants) -> Result<Self, Errno> {
        let name = format!(".state.keepwatch-{:016x}", random());
        Ok(Self(constants.path(Constant::NewFile, Path::new(&name))?))
    }
}

/// A file that is replaced by renaming a complete one over it, so that a reader sees the old content or the new
/// one.
///
/// There is no fsync: after a crash of the machine the content is found out anew.
#[derive(Debug)]
pub struct AtomicFile {
    directory_path: &'static CStr,
    path: &'static CStr,
    temporary: TemporaryName,
    /// Where the new file is made, so that this is looked up once for each write and not three times, which
    /// shows. The last time it is by its name: should that be another directory by now, the file gets
    /// there all the same, or cannot.
    directory: OwnedFd,
}

impl AtomicFile {
    /// Makes sure that files can be created in the directory; writes nothing. The constants are for that and for
    /// the file in it.
    ///
    /// # Errors
    /// As [`examine`].
    pub fn new(
        path: &Path,
        temporary: TemporaryName,
        [for_directory, for_path]: [Constant; 2],
        constants: &mut Constants,
    ) -> Result<Self, Errno> {
        examine(path)?;
        let directory_path = constants.path(for_directory, parent(path))?;
        let path = constants.path(for_path, path)?;
        let directory = open_directory(directory_path)?;
        Ok(Self { directory_path, path, temporary, directory })
    }

    /// Makes what `fill` writes the content, mode 0644. A symlink in its place is replaced, not followed. Returns
    /// the new file.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn replace(
        &mut self,
        fill: &mut dyn FnMut(&OwnedFd) -> nix::Result<()>,
    ) -> Result<OwnedFd, Errno> {
        if let Ok(file) = self.try_replace(fill) {
            return Ok(file);
        }
        // The directory may have been deleted and made anew, or mounted over.
        self.directory = open_directory(self.directory_path)?;
        Ok(self.try_replace(fill)?)
    }

    /// Whether there is a file, and it is not this one.
    pub fn is_another(&self, file: &OwnedFd) -> bool {
        identify(self.path).is_ok_and(|there| identify_open(file) != Ok(there))
    }

    /// Removes it if it is still this one.
    pub fn remove(&self, file: &OwnedFd) {
        if !self.is_another(file) {
            let _ = unlinkat(AT_FDCWD, self.path, UnlinkatFlags::NoRemoveDir);
        }
    }

    fn try_replace(
        &self,
        fill: &mut dyn FnMut(&OwnedFd) -> nix::Result<()>,
    ) -> nix::Result<OwnedFd> {
        let new = self.create()?;
        let rename = || renameat(&self.directory, self.temporary.0, AT_FDCWD, self.path);
        let replaced = fill(&new).and_then(|()| rename());
        if replaced.is_err() {
            // Not to leave it behind.
            let _ = self.remove_temporary();
        }
        replaced.map(|()| new)
    }

    fn create(&self) -> nix::Result<OwnedFd> {
        let mode = Mode::from_bits_truncate(0o644);
        let create = || openat(&self.directory, self.temporary.0, NEW_FILE, mode);
        create().or_else(|errno| match errno {
            // No other daemon has the name: it is what could not be removed, or was put there by somebody
            // who has seen it.
            NixErrno::EEXIST => {
                self.remove_temporary()?;
                create()
            }
            _ => Err(errno),
        })
    }

    fn remove_temporary(&self) -> nix::Result<()> {
        unlinkat(&self.directory, self.temporary.0, UnlinkatFlags::NoRemoveDir)
    }
}

/// Whether files can be created where one is to be. Changes nothing.
///
/// # Errors
/// The errno if the directory may not be written. A full one is no error here.
pub fn examine(path: &Path) -> Result<(), Errno> {
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    let directory = c_path(parent(path))?;
    Ok(faccessat(AT_FDCWD, directory.as_c_str(), access, AtFlags::AT_EACCESS)?)
}

/// Writes all of it.
///
/// # Errors
/// The errno of `write`, or `ENOSPC`.
pub fn write_all(file: &OwnedFd, bytes: &[u8]) -> nix::Result<()> {
    // A file takes less than it is given only if the file system is full.
    if write(file, bytes)? == bytes.len() { Ok(()) } else { Err(NixErrno::ENOSPC) }
}

/// A number that nobody else knows; early in the life of a machine, one that is hard to guess.
fn random() -> u64 {
    let mut random = clock::now().total_micros().cast_unsigned();
    // SAFETY: the kernel writes no more than the length, or fails and writes nothing.
    unsafe {
        let (to, length) = (&raw mut random, size_of::<u64>());
        libc::syscall(libc::SYS_getrandom, to, length, libc::GRND_NONBLOCK);
    }
    random
}

fn open_directory(path: &CStr) -> nix::Result<OwnedFd> {
    openat(AT_FDCWD, path, DIRECTORY, Mode::empty())
}
