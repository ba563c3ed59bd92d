//! keepalived's pid file: where it is, found out before the daemon gives up its rights.

use std::fs;
use std::path::Path;

use super::files::c_path;
use crate::errno::Errno;
use crate::sys::keepalived::KeepalivedFile;

/// The initial PID namespace (`include/linux/proc_ns.h`).
const INITIAL: &str = "pid:[4026531836]";

/// Prepares the path, and opens nothing yet.
pub fn watch(path: &Path) -> Result<KeepalivedFile, Errno> {
    let sees_all = fs::read_link("/proc/self/ns/pid").is_ok_and(|here| here == Path::new(INITIAL));
    Ok(KeepalivedFile { path: c_path(path)?, sees_all, process: None, locked: None })
}
