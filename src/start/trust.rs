//! Trust in paths: finds files and directories that other users can replace or change.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

use super::files::MAX_SYMLINKS;
use crate::options::denied;

/// Returns whether only root and this process's user can replace or change the file at an absolute path.
pub fn is_safe(path: &Path) -> bool {
    find_unsafe(path).is_none()
}

/// Returns the part of a path that others can replace or change, and why.
pub(crate) fn find_unsafe(path: &Path) -> Option<String> {
    // In a user namespace that does not map the host's root, this is the owner of the host's files.
    let top = fs::symlink_metadata("/").map_or(0, |top| top.uid());
    let users = [0, geteuid().as_raw(), top];
    let mut path = path.to_owned();
    'links: for _ in 0..MAX_SYMLINKS {
        let (mut walked, mut names) = (PathBuf::new(), path.components());
        while let Some(name) = names.next() {
            walked.push(name);
            let because = |why: String| Some(format!("{} {why}", walked.display()));
            let file = match fs::symlink_metadata(&walked) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return because("is missing".into());
                }
                Err(error) => return because(format!("cannot be seen: {}", denied(error))),
            };
            let rest = names.as_path();
            // In a sticky directory such as /tmp, no user can replace another's files.
            let is_sticky = file.mode() & libc::S_ISVTX != 0 && rest.components().next().is_some();
            // With an access control list, the group's permission covers all entries (`acl(5)`), so not even root's group is
            // trusted.
            let is_writable = file.mode() & (libc::S_IWGRP | libc::S_IWOTH) != 0;
            let is_closed = file.is_symlink() || is_sticky || !is_writable;
            if !walked.is_absolute() {
                return because("is relative".into());
            } else if !users.contains(&file.uid()) {
                return because(format!("belongs to user {}", file.uid()));
            } else if !is_closed {
                return because(format!("has mode {:04o}", file.mode() & 0o7777));
            }
            if file.is_symlink() {
                let target = match fs::read_link(&walked) {
                    Ok(target) => target,
                    Err(error) => return because(format!("cannot be read: {}", denied(error))),
                };
                walked.pop();
                path = walked.join(target).join(rest);
                continue 'links;
            }
        }
        return (!path.is_absolute()).then(|| "the path is empty".into());
    }
    Some("too many symlinks".into())
}
