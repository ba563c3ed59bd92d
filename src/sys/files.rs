//! Paths as C strings, and which file an open one is.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;

use crate::errno::Errno;

/// A path as a C string, which can be used without allocating.
///
/// # Errors
/// `EINVAL` if it contains a NUL.
pub(super) fn c_path(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NixErrno::EINVAL)
}

/// Device and inode of an open file.
///
/// # Errors
/// The errno of `statx` or `fstat`.
pub(super) fn identify(file: &File) -> Result<(u64, u64), Errno> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}
