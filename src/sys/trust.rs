//! Whom a path can be trusted to: whoever may write to a file, or to a directory above it, says what it is.

use std::fs::canonicalize;
use std::path::Path;

use nix::libc;
use nix::sys::stat::{FileStat, lstat};
use nix::unistd::geteuid;

/// Whether nobody but root, or who this process is, can put anything else in the place of what is at this
/// absolute path, or change it.
pub fn is_safe(path: &Path) -> bool {
    // By the names that are written, and, where those are symlinks, by what they stand for.
    chain_is_safe(path) && canonicalize(path).is_ok_and(|path| chain_is_safe(&path))
}

fn chain_is_safe(path: &Path) -> bool {
    // In a user namespace without the host's root this is whoever owns all that is not one's own.
    let Ok(top) = lstat(c"/") else { return false };
    let owners = [0, geteuid().as_raw(), top.st_uid];
    path.ancestors().enumerate().all(|(above, path)| {
        lstat(path).is_ok_and(|file| {
            let is_link = file.st_mode & libc::S_IFMT == libc::S_IFLNK;
            // In a sticky directory everybody may put new files, but not replace others'.
            let is_sticky = above > 0 && file.st_mode & libc::S_ISVTX != 0;
            owners.contains(&file.st_uid) && (is_link || is_sticky || !is_open(&file))
        })
    })
}

/// Whether others than the owner may write there. Whoever is in root's group is root's man.
pub(super) fn is_open(file: &FileStat) -> bool {
    file.st_mode & libc::S_IWOTH != 0 || (file.st_mode & libc::S_IWGRP != 0 && file.st_gid != 0)
}
