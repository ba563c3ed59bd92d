//! The one-word state file: whole or not at all.

#![expect(unsafe_code, reason = "getrandom")]

use core::ffi::CStr;
use core::fmt::Write;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heapless::String;
use nix::errno::Errno as Known;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat, write};

use super::clock;
use crate::errno::Errno;

/// How the name of the new file begins, for the instant until it is renamed. It ends in a number, another
/// one each time: two daemons of one router may overlap, and neither may have the other's file.
const TEMPORARY: &str = ".state.keepwatch";

/// Names that are tried until there is one that nobody has.
const NAMES: usize = 8;

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
    /// The last number in a name. Nobody else can know the next and be there first.
    random: u64,
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
        Ok(Self {
            conf_dir: c_path(conf_dir)?,
            path: c_path(&conf_dir.join("state"))?,
            directory,
            // Zero is the one state that xorshift never leaves.
            random: random().max(1),
        })
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

    fn replace(&mut self, word: &str) -> nix::Result<()> {
        let mut name = String::new();
        let file = self.create(&mut name)?;
        let name = c_name(&name)?;
        let replaced = match write(&file, word.as_bytes()) {
            Ok(written) if written == word.len() => {
                renameat(&self.directory, name, AT_FDCWD, self.path.as_c_str())
            }
            // A file takes less than it is given only if the file system is full.
            Ok(_) => Err(Known::ENOSPC),
            Err(errno) => Err(errno),
        };
        if replaced.is_err() {
            // Not to leave it behind.
            let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        }
        replaced
    }

    /// Creates the new file; gives its name with a NUL at the end.
    fn create(&mut self, name: &mut String<40>) -> nix::Result<OwnedFd> {
        // O_EXCL: whatever else is there under this name is somebody else's.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o644);
        for _ in 0..NAMES {
            // Marsaglia's xorshift64.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            name.clear();
            write!(name, "{TEMPORARY}-{:016x}\0", self.random).map_err(|_| Known::EINVAL)?;
            match openat(&self.directory, c_name(name)?, flags, mode) {
                Err(Known::EEXIST) => {}
                created => return created,
            }
        }
        Err(Known::EEXIST)
    }
}

/// A name that ends with a NUL.
fn c_name(name: &str) -> nix::Result<&CStr> {
    CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Known::EINVAL)
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

/// A directory to make files in, whoever we are when we do.
fn open_directory<P: nix::NixPath + ?Sized>(path: &P) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty())
}
