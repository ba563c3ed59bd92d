//! Which owners of files, directories and processes are trusted.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

/// Whether nobody but root and the user of this process can replace or change the file at an absolute path.
pub fn is_safe(path: &Path) -> bool {
    // In a user namespace that does not map the host's root, this is the owner of the host's files.
    let top = fs::symlink_metadata("/").map_or(0, |top| top.uid());
    is_changed_only_by(path, &[0, geteuid().as_raw(), top])
}

/// Whether nobody but these users can change where an absolute path leads, or what is there.
pub(super) fn is_changed_only_by(path: &Path, users: &[u32]) -> bool {
    let mut path = path.to_owned();
    // The kernel follows as many symlinks.
    'links: for _ in 0..40 {
        let (mut walked, mut names) = (PathBuf::new(), path.components());
        while let Some(name) = names.next() {
            walked.push(name);
            let Ok(file) = fs::symlink_metadata(&walked) else { return false };
            let rest = names.as_path();
            // In a sticky directory such as /tmp, everybody may make files, but not replace those of others.
            let is_sticky = file.mode() & libc::S_ISVTX != 0 && rest.components().next().is_some();
            let is_closed = file.is_symlink() || is_sticky || !is_open(&file);
            if !(walked.is_absolute() && users.contains(&file.uid()) && is_closed) {
                return false;
            }
            if file.is_symlink() {
                let Ok(target) = fs::read_link(&walked) else { return false };
                walked.pop();
                path = walked.join(target).join(rest);
                continue 'links;
            }
        }
        return path.is_absolute();
    }
    false
}

/// Whether others than the owner may write there. Where there is an access control list, the group's permission is
/// that of everyone in the list (`acl(5)`), so that not even root's group is trusted with it.
fn is_open(file: &Metadata) -> bool {
    file.mode() & (libc::S_IWGRP | libc::S_IWOTH) != 0
}
