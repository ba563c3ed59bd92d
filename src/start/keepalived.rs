//! keepalived's pid file: where it is, found out before the daemon gives up its rights.

use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::files::c_path;
use super::process::sees_all;
use crate::errno::Errno;
use crate::sys::keepalived::KeepalivedFile;

/// Prepares the path, and opens nothing yet.
pub fn watch(path: &Path) -> Result<KeepalivedFile, Errno> {
    let directory = path.ancestors().skip(1).find_map(|directory| statfs(directory).ok());
    let in_memory = directory.is_some_and(|found| found.filesystem_type() == TMPFS_MAGIC);
    let (path, sees_all) = (c_path(path)?, sees_all());
    Ok(KeepalivedFile { path, sees_all, in_memory, process: None, locked: None })
}
