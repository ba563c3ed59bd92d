//! The state file, and a spare with the other word in the same directory. A change of state exchanges the two
//! (`renameat2(2)`): it makes no inode, and needs no room on a full disk.
//!
//! Other processes may write into both, as Neutron's agent does. So the spare carries a mark: a time of modification that
//! only this daemon sets. It is set first, and the word is read afterwards. A write before the mark has its word read, and
//! a write after the mark changes the time. A spare without its mark is not used.
//!
//! Both files are locked as long as their daemon runs, so that a successor removes only what a killed daemon has left.

#![expect(unsafe_code, reason = "nix has no renameat2 for musl")]

use core::mem::swap;
use std::ffi::{CStr, CString};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, fstat, lstat};
use nix::unistd::Uid;

use super::atomic_file::{AtomicFile, create};
use super::clock;
use super::files::{is_same, unlink};
use super::own_file::{self, Refusal};
use crate::errno::Errno;
use crate::monitor::FoundStateFile;

/// Both words are shorter.
const MAX_WORD: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct StateFile {
    pub(crate) file: AtomicFile,
    /// The user of this process.
    pub(crate) user: Uid,
    /// No other process has this name.
    pub(crate) spare_path: CString,
    /// The last file at the path.
    pub(crate) live: Option<Written>,
    pub(crate) spare: Option<Written>,
    /// The file system cannot exchange files, or has no locks.
    pub(crate) has_no_spare: bool,
}

/// An open file of this daemon. While it is open, no other file gets its inode number.
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    id: FileStat,
    /// The word in it, unless a write or a check of that has failed.
    word: Option<&'static str>,
}

impl StateFile {
    /// Writes the word, so that a reader finds the old one or the new one. Exchanges the files if the spare has the word, and
    /// writes a new file otherwise. Without room for that, the file itself is renewed, and away for some microseconds.
    ///
    /// # Errors
    /// The errno of the last step; the old word remains.
    pub fn write(&mut self, word: &'static str) -> Result<(), Errno> {
        if self.exchange(word).is_ok() {
            return Ok(());
        }
        let replace = |access| self.file.replace(word.as_bytes(), access);
        let written = replace(OFlag::O_RDWR).or_else(|errno| match NixErrno::from_raw(errno.0) {
            // Landlock allows no reading in a directory that is not the one of the start.
            NixErrno::EACCES => replace(OFlag::O_WRONLY),
            _ => Err(errno),
        });
        match written.and_then(|file| Written::new(file, Some(word))) {
            Ok(new) => {
                self.live = Some(new);
                Ok(())
            }
            // A full disk. The room of the spare, or of the file itself, suffices for either word. Otherwise the first error is
            // reported.
            Err(errno) => self
                .usable_spare()
                .and_then(|(spare, _)| spare.renew(word).ok())
                .and_then(|()| self.exchange(word).ok())
                .or_else(|| self.rewrite(word).ok())
                .ok_or(errno),
        }
    }

    /// Exchanges state file and spare, if the spare has the word, and no other process has touched it. The spare replaces what
    /// cannot be exchanged: nothing, or with Landlock anything but a regular file or a directory.
    fn exchange(&mut self, word: &'static str) -> Result<(), Errno> {
        let is_ready = self.usable_spare().is_some_and(|(spare, found)| {
            let mark = (found.st_mtime, found.st_mtime_nsec);
            spare.word == Some(word)
                && mark == (0, 0)
                && usize::try_from(found.st_size) == Ok(word.len())
        });
        if !is_ready {
            return Err(NixErrno::ESTALE.into());
        }
        match exchange(&self.spare_path, &self.file.path) {
            Ok(()) => swap(&mut self.live, &mut self.spare),
            Err(errno @ (NixErrno::EINVAL | NixErrno::ENOSYS | NixErrno::EOPNOTSUPP)) => {
                self.do_without_spare();
                return Err(errno.into());
            }
            Err(_) => {
                rename(&self.spare_path, &self.file.path)?;
                self.live = self.spare.take();
            }
        }
        Ok(())
    }

    /// Writes the word into the present file, or into a predecessor's.
    fn rewrite(&mut self, word: &'static str) -> Result<(), Refusal> {
        let there = lstat(&*self.file.path)?;
        let own = self.live.take_if(|live| is_same(&live.id, &there));
        let mut file = own.map_or_else(|| self.open_other(), Ok)?;
        // One that cannot be read stays where it is.
        let renewed = file.holds(word).and_then(|_| self.renew_away(&mut file, word));
        self.live = Some(file);
        Ok(renewed?)
    }

    /// Renews the file under the spare's name, so that nobody reads half a word: for some microseconds there is none. A daemon
    /// that is killed then leaves none.
    fn renew_away(&self, file: &mut Written, word: &'static str) -> Result<(), Errno> {
        let modified = file.file.metadata()?.modified()?;
        rename(&self.file.path, &self.spare_path)?;
        let renewed = file.renew(word);
        if renewed.is_err() {
            // A reader has the old word.
            let _ = file.file.set_modified(modified);
        }
        rename(&self.spare_path, &self.file.path)?;
        renewed
    }

    /// Opens a file that another daemon has written. `EAGAIN` if that may not have ended yet.
    fn open_other(&self) -> Result<Written, Refusal> {
        let file = own_file::open(&self.file.path, OFlag::O_RDWR, self.user)?;
        // Whoever may read the file can share its lock, but a daemon has it alone.
        file.try_lock().or_else(|_| file.try_lock_shared()).map_err(|_| NixErrno::EAGAIN)?;
        let other = Written::new(file, None)?;
        // Other rights would stay for good. A default ACL of the directory may have taken some away.
        let has_rights =
            other.id.st_mode & 0o7777 & !0o644 == 0 && other.id.st_uid == self.user.as_raw();
        if has_rights { Ok(other) } else { Err(NixErrno::EPERM.into()) }
    }

    /// Prepares the next change, after a write: gives the live file its time, in seconds since 1970 (0: unknown), and has
    /// the spare hold the other word.
    ///
    /// # Errors
    /// The errno of the step that failed. Without a spare, the next change writes a new file.
    pub fn prepare(&mut self, other: &'static str, since: u64) -> Result<(), Errno> {
        if let Some(live) = &self.live {
            // Only a time that is known has no fraction: see `find_predecessor`.
            let known = (since > 0).then(|| Duration::from_secs(since));
            let unknown = || Duration::new(clock::unix_time(clock::now()), 500_000_000);
            live.file.set_modified(UNIX_EPOCH + known.unwrap_or_else(unknown))?;
        }
        if self.has_no_spare {
            return Ok(());
        }
        if self.usable_spare().is_none() {
            // A starting daemon may remove the first one before it is locked.
            self.create_spare().or_else(|_| self.create_spare())?;
        }
        let Some(spare) = &mut self.spare else { return Ok(()) };
        let was_blank = spare.word.is_none();
        spare.renew(other)?;
        // A predecessor's file that was renewed on a full disk may have another mode than a new file: the next look finds that
        // as a change.
        if let Some(live) = self.live.as_mut().filter(|_| was_blank) {
            live.id.st_mode = spare.id.st_mode;
        }
        Ok(())
    }

    /// Returns the spare, if it is the file at its path. The directory may be another one, or be mounted over. One that cannot be
    /// seen is created anew.
    fn usable_spare(&mut self) -> Option<(&mut Written, FileStat)> {
        let found = lstat(&*self.spare_path).ok()?;
        let spare = self.spare.as_mut()?;
        spare.is_usable(&found).then_some((spare, found))
    }

    /// Creates a spare without a word, in place of any file at its path.
    fn create_spare(&mut self) -> Result<(), Errno> {
        self.spare = None;
        let file = match create(&self.spare_path, OFlag::O_RDWR) {
            // Only reading is not allowed: without a right to the directory, the state file is not written either. The file
            // has been created nevertheless.
            Err(NixErrno::EACCES) => {
                self.do_without_spare();
                return Ok(());
            }
            created => created?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NixErrno::EAGAIN.into()),
            // A successor could not tell it from one of a killed daemon.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                self.do_without_spare();
                return Ok(());
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        self.spare = Some(Written::new(file, None)?);
        self.usable_spare().map(drop).ok_or(NixErrno::ESTALE.into())
    }

    fn do_without_spare(&mut self) {
        (self.spare, self.has_no_spare) = (None, true);
        // The exit or the next start removes what is left.
        let _ = unlink(&self.spare_path);
    }

    /// Returns what is at the path.
    pub fn find(&self) -> FoundStateFile {
        let Some(live) = &self.live else { return FoundStateFile::Intact };
        // `EBADF`: Landlock allowed no reading when it was opened.
        let holds = |word| live.holds(word).unwrap_or_else(|errno| errno == NixErrno::EBADF.into());
        match lstat(&*self.file.path) {
            Ok(there) if !is_same(&there, &live.id) => FoundStateFile::Foreign,
            Ok(there) if live.is(&there) && live.word.is_none_or(holds) => {
                let spare = self.spare.as_ref().zip(lstat(&*self.spare_path).ok());
                let is_ready = spare.is_some_and(|(spare, found)| spare.is_usable(&found));
                if is_ready || self.has_no_spare {
                    FoundStateFile::Intact
                } else {
                    FoundStateFile::WithoutSpare
                }
            }
            // If it cannot be seen, either, the write reports why.
            _ => FoundStateFile::Changed,
        }
    }
}

impl Drop for StateFile {
    /// Removes the spare, or leaves that to the next start. Neutron removes the directory right after the end of the daemon.
    fn drop(&mut self) {
        let _ = unlink(&self.spare_path);
    }
}

impl Written {
    fn new(file: File, word: Option<&'static str>) -> Result<Self, Errno> {
        let id = fstat(&file)?;
        Ok(Self { file, id, word })
    }

    /// Returns whether this is the file that was found, with the mode and the owner that it had, as an exchange would bring
    /// others back at every second change.
    fn is(&self, found: &FileStat) -> bool {
        let rights = |stat: &FileStat| (stat.st_mode, stat.st_uid, stat.st_gid);
        is_same(&self.id, found) && rights(&self.id) == rights(found)
    }

    /// Returns whether this is the file that was found, as it was made, without another name.
    fn is_usable(&self, found: &FileStat) -> bool {
        self.is(found) && found.st_nlink == 1
    }

    /// Writes the word, unless the file holds it, and sets the mark.
    fn renew(&mut self, word: &'static str) -> Result<(), Errno> {
        self.word = None;
        self.file.set_modified(UNIX_EPOCH)?;
        if !self.holds(word)? {
            self.file.write_all_at(word.as_bytes(), 0)?;
            self.file.set_len(u64::try_from(word.len()).unwrap_or_default())?;
            self.file.set_modified(UNIX_EPOCH)?;
            if !self.holds(word)? {
                return Err(NixErrno::EBUSY.into());
            }
        }
        self.word = Some(word);
        Ok(())
    }

    fn holds(&self, word: &str) -> Result<bool, Errno> {
        let mut content = [0; MAX_WORD];
        let length = self.file.read_at(&mut content, 0)?;
        Ok(content.get(..length) == Some(word.as_bytes()))
    }
}

fn rename(from: &CStr, to: &CStr) -> nix::Result<()> {
    renameat(AT_FDCWD, from, AT_FDCWD, to)
}

/// Exchanges two files of the same file system.
fn exchange(one: &CStr, other: &CStr) -> nix::Result<()> {
    let (here, flag) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    let (one, other) = (one.as_ptr(), other.as_ptr());
    // SAFETY: both paths end in NUL, and the kernel only reads them.
    let exchanged = unsafe { libc::syscall(libc::SYS_renameat2, here, one, here, other, flag) };
    NixErrno::result(exchanged).map(drop)
}
