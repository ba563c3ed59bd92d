//! The one-word state file: whole or not at all.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat, write};

use crate::errno::Errno;

/// `<conf_dir>/state`, replaced by renaming a complete file over it, so that a reader sees the old
/// word or the new one.
///
/// There is no fsync: after a crash of the machine the state is found out anew.
#[derive(Debug)]
pub struct StateFile {
    path: CString,
    temporary: CString,
}

impl StateFile {
    /// Makes sure that files can be created in `conf_dir`; writes nothing.
    ///
    /// # Errors
    /// The errno if the directory may not be written. A full one is no error here.
    pub fn new(conf_dir: &Path) -> Result<Self, Errno> {
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(AT_FDCWD, conf_dir, access, AtFlags::AT_EACCESS)?;
        let c_path = |name| {
            CString::new(conf_dir.join(name).as_os_str().as_bytes())
                .map_err(|_| Errno::from(Known::EINVAL))
        };
        Ok(Self { path: c_path("state")?, temporary: c_path(".state.keepwatch")? })
    }

    /// Makes `word` the content, mode 0644. A symlink in its place is replaced, not followed.
    ///
    /// # Errors
    /// The errno of the step that failed; the old content is still there.
    pub fn write(&self, word: &str) -> Result<(), Errno> {
        let written = self.write_temporary(word).and_then(|()| {
            renameat(AT_FDCWD, self.temporary.as_c_str(), AT_FDCWD, self.path.as_c_str())
        });
        if written.is_err() {
            // Not to leave it behind; if there is none, all the better.
            let _ = self.remove_temporary();
        }
        Ok(written?)
    }

    fn write_temporary(&self, word: &str) -> nix::Result<()> {
        // O_EXCL: whatever else is there under this name, be it a link or a FIFO, is not opened.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        let create = || openat(AT_FDCWD, self.temporary.as_c_str(), flags, mode);
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
        unlinkat(AT_FDCWD, self.temporary.as_c_str(), UnlinkatFlags::NoRemoveDir)
    }
}
