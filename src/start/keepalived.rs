//! keepalived's pid file: where it is, found out before the daemon gives up its rights.

use std::path::Path;

use super::files::c_path;
use super::process::sees_all;
use crate::errno::Errno;
use crate::sys::keepalived::KeepalivedFile;

/// Prepares the path, and opens nothing yet.
pub fn watch(path: &Path) -> Result<KeepalivedFile, Errno> {
    Ok(KeepalivedFile { path: c_path(path)?, sees_all: sees_all(), process: None, locked: None })
}
