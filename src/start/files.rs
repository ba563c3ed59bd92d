//! Files that a predecessor has left, and trials of those that the daemon will open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::sys::atomic_file;
use crate::sys::files::c_path;
use crate::sys::own_file::{Refusal, open};

/// Renames a file that could not be opened, such as the file of a predecessor that ran as root.
pub fn set_aside(path: &Path, refusal: Refusal) -> Result<(), Refusal> {
    check_directory(path, refusal)?;
    let mut aside = path.as_os_str().to_owned();
    aside.push(".predecessor");
    Ok(fs::rename(path, aside)?)
}

/// Checks whether [`open`] would open or create a file, or would after [`set_aside`]. Changes nothing.
pub fn examine(path: &Path) -> Result<(), Refusal> {
    let opened = match open(&c_path(path)?, OFlag::O_WRONLY, geteuid()).map(drop) {
        Err(Refusal::Errno(Errno::NOT_FOUND)) => atomic_file::examine(path).map_err(Refusal::from),
        opened => opened,
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
    // A mount point cannot be renamed.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&path)) {
        return Err(NixErrno::EBUSY.into());
    }
    Ok(atomic_file::examine(&path)?)
}
