//! The pid file, which is also the lock that keeps a second instance out.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno as Known;
use nix::fcntl::AT_FDCWD;
use nix::libc;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::file::{Identity, identify};
use crate::errno::Errno;

/// A locked pid file, removed when it is dropped. The lock ends with the process, so a stale file is taken over.
#[derive(Debug)]
pub struct PidFile {
    path: CString,
    /// Its lock ends when it is closed.
    file: File,
    /// None if the system cannot tell.
    identity: Option<Identity>,
}

/// Why the pid file could not be had.
#[derive(Debug, PartialEq, Eq)]
pub enum NoPidFile {
    /// Another instance holds it; this is what the file says of it.
    Held(String),
    /// It cannot be opened or locked.
    Errno(Errno),
}

impl PidFile {
    /// Opens or creates the file, mode 0644, locks it, and makes this process's pid its content: digits, no
    /// newline.
    ///
    /// # Errors
    /// [`NoPidFile`].
    pub fn lock(path: &Path) -> Result<Self, NoPidFile> {
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)
                .map_err(|error| NoPidFile::Errno(error.into()))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    return Err(NoPidFile::Held(holder));
                }
                Err(TryLockError::Error(error)) => return Err(NoPidFile::Errno(error.into())),
            }
            // Its holder may have removed it between our opening and locking it.
            let same = |there: fs::Metadata, ours: fs::Metadata| {
                (there.dev(), there.ino()) == (ours.dev(), ours.ino())
            };
            if let (Ok(there), Ok(ours)) = (fs::metadata(path), file.metadata())
                && same(there, ours)
            {
                let path = CString::new(path.as_os_str().as_bytes())
                    .map_err(|_| NoPidFile::Errno(Known::EINVAL.into()))?;
                let identity = identify(&path).ok();
                let mut locked = Self { path, file, identity };
                return locked.write().map(|()| locked).map_err(NoPidFile::Errno);
            }
        }
    }

    /// At once, and the pid before what is left of an older one is cut off, so that the file is not found
    /// empty.
    fn write(&mut self) -> Result<(), Errno> {
        let pid = std::process::id().to_string();
        self.file.write_all(pid.as_bytes())?;
        self.file.set_len(pid.len() as u64)?;
        Ok(())
    }
}

impl Drop for PidFile {
    /// Removes the file before the lock ends, unless it is another's by now: Neutron's agent removes
    /// the file itself as soon as it has sent SIGTERM, and may have started the next one.
    fn drop(&mut self) {
        if identify(&self.path).is_ok_and(|there| Some(there) != self.identity) {
            return;
        }
        let removed = unlinkat(AT_FDCWD, self.path.as_c_str(), UnlinkatFlags::NoRemoveDir);
        if removed.is_err() {
            // Who has dropped to a user that may not remove it leaves it, but it names nobody.
            let _ = self.file.set_len(0);
        }
    }
}
