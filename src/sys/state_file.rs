//! The one-word state file: whole or not at all.

use core::ffi::CStr;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat, write};

use crate::errno::Errno;

/// The name of the new file, for the instant until it is renamed.
const TEMPORARY: &CStr = c".state.keepwatch";

/// `<conf_dir>/state`, replaced by renaming a complete file over it, so that a reader sees the old
/// word or the new one.
///
/// There is no fsync: after a crash of the machine the state is found out anew.
#[derive(Debug)]
pub struct StateFile {
    conf_dir: CString,
    path: CString,
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
    pub fn new(conf_dir: &Path) -> Result<Self, Errno> {
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(AT_FDCWD, conf_dir, access, AtFlags::AT_EACCESS)?;
        let c_path = |path: &Path| {
            CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::from(Known::EINVAL))
        };
        let directory = open_directory(conf_dir)?;
        Ok(Self { conf_dir: c_path(conf_dir)?, path: c_path(&conf_dir.join("state"))?, directory })
    }

    /// Makes `word` the content, mode 0644. A symlink in its place is replaced, not followed.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn write(&mut self, word: &str) -> Result<(), Errno> {
        if self.replace(word).is_err() {
            // The directory may have been deleted and made anew, or mounted over.
            self.directory = open_directory(self.conf_dir.as_c_str())?;
            self.replace(word)?;
        }
        Ok(())
    }

    fn replace(&self, word: &str) -> nix::Result<()> {
        let replaced = self
            .write_temporary(word)
            .and_then(|()| renameat(&self.directory, TEMPORARY, AT_FDCWD, self.path.as_c_str()));
        if replaced.is_err() {
            // Not to leave it behind; if there is none, all the better.
            let _ = self.remove_temporary();
        }
        replaced
    }

    fn write_temporary(&self, word: &str) -> nix::Result<()> {
        // O_EXCL: whatever else is there under this name, be it a link or a FIFO, is not opened.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        let create = || openat(&self.directory, TEMPORARY, flags, mode);
        let file = create().or_else(|errno| match errno {
            Known::EEXIST => {
                self.remove_temporary()?;
                create()
            }
            _ => Err(errno),
        })?;
        // A file takes less than it is given only if the file system is full.
        if write(&file, word.as_bytes())? == word.len() { Ok(()) } else { Err(Known::ENOSPC) }
    }

    fn remove_temporary(&self) -> nix::Result<()> {
        unlinkat(&self.directory, TEMPORARY, UnlinkatFlags::NoRemoveDir)
    }
}

/// A directory to make files in, whoever we are when we do.
fn open_directory<P: nix::NixPath + ?Sized>(path: &P) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty())
}
