//! Files that a predecessor has left, the names of hidden files, and trials of files that the daemon will open.

use std::collections::hash_map::RandomState;
use std::ffi::CString;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::process::sees_all;
use crate::errno::Errno;
use crate::sys::atomic_file::{AtomicFile, create};
use crate::sys::files::{SAFELY, is_at, is_full, unlink};
use crate::sys::keepalived::KeepalivedFile;
use crate::sys::own_file::{Refusal, open};
use crate::sys::state_file::StateFile;

/// The most symlinks that the kernel follows in a path (`path_resolution(7)`).
pub(super) const MAX_SYMLINKS: u32 = 40;

/// Returns a path that can be used without allocating. `EINVAL` if it contains a NUL.
pub(crate) fn c_path(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NixErrno::EINVAL)
}

/// Resolves the symlinks of a file's directory, if that can be seen. The file itself may be missing, or a symlink.
pub(crate) fn resolve_directory(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let resolved = directory.zip(path.file_name()).map(|(directory, name)| directory.join(name));
    resolved.unwrap_or_else(|| path.into())
}

/// Renames a file that could not be opened, such as the file of a predecessor that ran as root: see [`check_directory`].
pub fn set_aside(path: &Path) -> Result<(), Refusal> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".predecessor");
    Ok(fs::rename(path, aside)?)
}

/// Checks whether [`open`] would open a file with these flags or create it, or would after [`set_aside`], and whether this
/// content could then be written. Changes nothing.
pub fn examine(path: &Path, flags: OFlag, content: &[u8]) -> Result<(), Refusal> {
    let opened = match open(&c_path(path)?, flags - OFlag::O_CREAT, geteuid()) {
        Ok(_) => examine_room(path, content).map_err(Refusal::from),
        Err(Refusal::Errno(Errno::NOT_FOUND)) => {
            examine_replaced(path, content).map_err(Refusal::from)
        }
        Err(refusal) => Err(refusal),
    };
    opened.or_else(|refusal| check_directory(path, refusal))
}

/// Checks that this user can rename a file whose opening failed with `EACCES`. The error is any other `refusal` to open it,
/// or the defect of its directory.
pub fn check_directory(path: &Path, refusal: Refusal) -> Result<(), Refusal> {
    let user = geteuid().as_raw();
    if refusal != NixErrno::EACCES.into() {
        return Err(refusal);
    }
    if fs::metadata(path.parent().unwrap_or(path))?.uid() != user {
        return Err(Refusal::NotTheirs(user));
    }
    Ok(examine_replaced(path, b"")?)
}

impl AtomicFile {
    /// Prepares the paths, and accesses no file.
    ///
    /// # Errors
    /// `EINVAL` if the path has a NUL.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        Ok(Self { path: c_path(path)?, temporary: hidden_path(path)? })
    }
}

impl StateFile {
    /// Prepares the paths, and checks that the file can be replaced. A full disk is no error here.
    ///
    /// # Errors
    /// The errno of a trial: `examine_replaced`.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        let tried = examine_replaced(path, b"");
        tried.or_else(|errno| if is_full(errno) { Ok(()) } else { Err(errno) })?;
        Ok(Self {
            file: AtomicFile::new(path)?,
            user: geteuid(),
            spare_path: hidden_path(path)?,
            live: None,
            spare: None,
            has_no_spare: false,
        })
    }
}

impl KeepalivedFile {
    /// Prepares the path, and opens nothing yet.
    pub fn new(path: &Path) -> Result<Self, Errno> {
        let directory = path.ancestors().skip(1).find_map(|directory| statfs(directory).ok());
        let in_memory = directory.is_some_and(|found| found.filesystem_type() == TMPFS_MAGIC);
        let (path, sees_all) = (c_path(path)?, sees_all());
        Ok(Self { path, sees_all, in_memory, process: None, locked: None })
    }
}

/// Returns how the names of hidden files beside this one begin.
fn hidden_prefix(path: &Path) -> String {
    // The longest name must fit.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(".{}.keepwatch-", name.chars().take(50).collect::<String>())
}

/// Returns a path beside this one with a name that no other process has. A pid is not enough: processes in different PID
/// namespaces may have the same one, and share a directory.
fn hidden_path(path: &Path) -> nix::Result<CString> {
    let unique = RandomState::new().hash_one(std::process::id());
    c_path(&path.with_file_name(format!("{}{unique:016x}", hidden_prefix(path))))
}

/// Removes the hidden files beside this one that killed daemons have left. Those of running daemons are locked.
pub fn remove_leftovers(path: &Path) {
    let prefix = hidden_prefix(path);
    let found = path.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let is_leftover = |entry: &fs::DirEntry| {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        is_file && entry.file_name().to_string_lossy().starts_with(&prefix)
    };
    for entry in found.filter(is_leftover) {
        let Ok(path) = c_path(&entry.path()) else { continue };
        let opened = nix::fcntl::open(&*path, OFlag::O_RDONLY | SAFELY, Mode::empty());
        let free = opened.map(File::from).ok().filter(|file| file.try_lock().is_ok());
        // Its owner may have renamed it, and made another.
        if free.is_some_and(|file| is_at(&path, &file) == Ok(true)) {
            // Another daemon that starts may have removed it. The next start tries again.
            let _ = unlink(&path);
        }
    }
}

/// Refuses a device, a FIFO or a socket: a file that is renamed over `/dev/null` would take it from the whole machine.
pub(super) fn refuse_special(path: &Path) -> Result<(), Refusal> {
    match path.symlink_metadata().map(|found| found.file_type()) {
        Ok(kind) if !kind.is_file() && !kind.is_symlink() && !kind.is_dir() => {
            Err(Refusal::NotRegular)
        }
        _ => Ok(()),
    }
}

/// Checks that a file can be replaced, by writing and removing a temporary one. The file itself stays.
pub fn examine_replaced(path: &Path, content: &[u8]) -> Result<(), Errno> {
    let file = AtomicFile::new(path)?;
    let mut new = create(&file.temporary, OFlag::O_WRONLY)?;
    let written = new.write_all(content);
    match unlink(&file.temporary) {
        // Another daemon that starts may have removed it.
        Ok(()) | Err(NixErrno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => return Err(NixErrno::EISDIR.into()),
        Ok(_) if is_mount_point(path) => return Err(NixErrno::EBUSY.into()),
        _ => {}
    }
    // On a file, `rmdir` checks the right to remove it (`may_delete` in fs/namei.c), then fails with ENOTDIR.
    match unlinkat(nix::fcntl::AT_FDCWD, &*file.path, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(NixErrno::ENOENT | NixErrno::ENOTDIR) => Ok(written?),
        Err(errno) => Err(errno.into()),
    }
}

/// Checks that the disk has room for this content, if the file has none yet. Changes nothing.
pub fn examine_room(path: &Path, content: &[u8]) -> Result<(), Errno> {
    if fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    let tried = examine_replaced(path, content);
    tried.or_else(|errno| if is_full(errno) { Err(errno) } else { Ok(()) })
}

/// Returns whether a file is mounted there, as by a container's engine. It can be neither renamed nor replaced. Mount points
/// have blanks and the like escaped (`proc_pid_mountinfo(5)`).
fn is_mount_point(path: &Path) -> bool {
    let path = resolve_directory(path).to_string_lossy().replace('\\', "\\134");
    let path = path.replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&mounts).lines().any(|line| line.split(' ').nth(4) == Some(&path))
}
