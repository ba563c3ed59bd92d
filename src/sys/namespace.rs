//! Network namespaces.

use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;

use crate::errno::Errno;

/// Where `ip netns` keeps named namespaces.
const RUN_DIR: &str = "/run/netns";

/// The file that stands for a namespace, given by its name or by an absolute path.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    Path::new(RUN_DIR).join(namespace)
}

/// Moves the process into the network namespace that `path` stands for.
///
/// # Errors
/// `ENOENT` if there is none, `EPERM` without `CAP_SYS_ADMIN` in both, `EINVAL` if the file stands
/// for something else.
pub fn enter(path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}
