//! The one-word state file: whole or not at all.

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
use crate::errno::Errno;

/// How the name of the new file begins, for the instant until it is renamed. It ends in a random number of
/// each daemon's own: two of one router may overlap, and neither may have the other's file.
const TEMPORARY: &str = ".state.keepwatch";

/// How the directory is opened: to make files in, whoever we are when we do.
pub const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// How the new file is. `O_EXCL`: whatever else is there under this name, be it a link or a FIFO, is not
/// opened.
pub const NEW_FILE: OFlag =
    OFlag::O_WRONLY.union(OFlag::O_CREAT).union(OFlag::O_EXCL).union(OFlag::O_CLOEXEC);

/// `<conf_dir>/state`, replaced by renaming a complete file over it, so that a reader sees the old
/// word or the new one.
///
/// There is no fsync: after a crash of the machine the state is found out anew.
#[derive(Debug)]
pub struct StateFile {
    conf_dir: &'static CStr,
    path: &'static CStr,
    /// The name of the new file.
    temporary: &'static CStr,
    /// Where the new file is made, so that `conf_dir` is looked up once for each word and not three
    /// times, which shows. The last time it is by its name: should that be another directory by now,
    /// the file gets there all the same, or cannot.
    directory: OwnedFd,
}

impl StateFile {
    /// Makes sure that files can be created in `conf_dir`; writes nothing.
    ///
    /// # Errors
    /// The errno if the directory may not be written. A full one is no error here.
    pub fn new(conf_dir: &Path, constants: &mut Constants) -> Result<Self, Errno> {
        let temporary = format!("{TEMPORARY}-{:016x}", random());
        let temporary = constants.path(Constant::NewState, Path::new(&temporary))?;
        let path = constants.path(Constant::State, &conf_dir.join("state"))?;
        let conf_dir = constants.path(Constant::ConfDir, conf_dir)?;
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(AT_FDCWD, conf_dir, access, AtFlags::AT_EACCESS)?;
        Ok(Self { conf_dir, path, temporary, directory: open_directory(conf_dir)? })
    }

    /// Makes `word` the content, mode 0644. A symlink in its place is replaced, not followed.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn write(&mut self, word: &str) -> Result<(), Errno> {
        if self.replace(word).is_err() {
            // The directory may have been deleted and made anew, or mounted over.
            self.directory = open_directory(self.conf_dir)?;
            self.replace(word)?;
        }
        Ok(())
    }

    fn replace(&self, word: &str) -> nix::Result<()> {
        let file = self.create()?;
        let replaced = match write(&file, word.as_bytes()) {
            Ok(written) if written == word.len() => {
                renameat(&self.directory, self.temporary, AT_FDCWD, self.path)
            }
            // A file takes less than it is given only if the file system is full.
            Ok(_) => Err(NixErrno::ENOSPC),
            Err(errno) => Err(errno),
        };
        if replaced.is_err() {
            // Not to leave it behind.
            let _ = self.remove();
        }
        replaced
    }

    fn create(&self) -> nix::Result<OwnedFd> {
        let mode = Mode::from_bits_truncate(0o644);
        let create = || openat(&self.directory, self.temporary, NEW_FILE, mode);
        create().or_else(|errno| match errno {
            // No other daemon has the name: it is what could not be removed, or was put there by somebody
            // who has seen it.
            NixErrno::EEXIST => {
                self.remove()?;
                create()
            }
            _ => Err(errno),
        })
    }

    fn remove(&self) -> nix::Result<()> {
        unlinkat(&self.directory, self.temporary, UnlinkatFlags::NoRemoveDir)
    }
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
