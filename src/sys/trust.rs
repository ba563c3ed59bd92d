//! Which owners of files, directories and processes are trusted.

use core::ffi::CStr;
use std::ffi::CString;
use std::path::Path;

use nix::libc;
use nix::unistd::{Uid, geteuid};

use super::file_id::{FileId, identify_link};
use super::files::{c_path, c_string, content, number, read_link, split, words};

/// The trusted users: root, the user that this process runs as, and the one that the daemon will run as.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    own: u32,
    user: Option<u32>,
    unknown: Option<u32>,
}

impl Trusted {
    /// `user` is the one that the daemon will run as.
    pub fn new(user: Option<Uid>) -> Self {
        let user = user.map(Uid::as_raw);
        Self { own: geteuid().as_raw(), user, unknown: unknown() }
    }

    /// Whether `user` is one of them.
    pub fn includes(self, user: u32) -> bool {
        let known = Some(user) != self.unknown;
        known && (user == 0 || user == self.own || Some(user) == self.user)
    }
}

/// The overflow uid, which stands for all users that this user namespace does not map. `None` if it is mapped
/// itself.
pub fn unknown() -> Option<u32> {
    let overflow = content(c"/proc/sys/kernel/overflowuid");
    let overflow = words(&overflow).next().and_then(number).unwrap_or(65_534);
    // Each range has three numbers: first inside, first outside, length.
    let map = content(c"/proc/self/uid_map");
    let mut map = words(&map).map(number);
    while let Some(first) = map.next() {
        let (first, count) = (first?, map.nth(1)??);
        if overflow.checked_sub(first).is_some_and(|place| place < count) {
            return None;
        }
    }
    Some(overflow)
}

/// Whether nobody but root and the user of this process can replace or change the file at an absolute path.
pub fn is_safe(path: &Path) -> bool {
    c_path(path).is_ok_and(|path| is_protected(&path))
}

/// As [`is_safe`].
pub(super) fn is_protected(path: &CStr) -> bool {
    // In a user namespace that does not map the host's root, this is the owner of the host's files.
    let top = identify_link(c"/").map_or(0, |top| top.user);
    resolve(path.to_bytes(), &[0, geteuid().as_raw(), top], false).is_some()
}

/// Resolves all symlinks of an absolute path. Returns `None` if anybody but these owners could have
/// changed where it leads, or still can. In a sticky directory such as `/tmp`, everybody may make files but
/// not replace those of others; the path may end at one with `sticky_end` only.
pub(super) fn resolve(path: &[u8], owners: &[u32], sticky_end: bool) -> Option<CString> {
    let mut path = Some(path.to_vec()).filter(|path| path.starts_with(b"/"))?;
    // The kernel follows as many symlinks.
    'links: for _ in 0..40 {
        for end in 0..=path.len() {
            if path.get(end).is_some_and(|byte| *byte != b'/') {
                continue;
            }
            let (above, rest) = path.split_at_checked(end)?;
            let file = if above.is_empty() { c"/".into() } else { c_string(above).ok()? };
            let status = identify_link(&file).ok()?;
            let is_link = status.kind() == libc::S_IFLNK;
            let is_sticky = status.mode & libc::S_ISVTX != 0 && (sticky_end || !rest.is_empty());
            if !owners.contains(&status.user) || !(is_link || is_sticky || !is_open(&status)) {
                return None;
            }
            if is_link {
                let target = read_link(&file).ok()?;
                let target = target.to_bytes();
                let directory = if target.starts_with(b"/") { b"" } else { split(above).0 };
                path = [directory, target, rest].concat();
                continue 'links;
            }
        }
        return c_string(&path).ok();
    }
    None
}

/// Whether others than the owner may write there. Of a file with an access list the group's bits are the mask of
/// what all in the list may do (`acl(5)`), so they count whatever the group is.
fn is_open(file: &FileId) -> bool {
    file.mode & (libc::S_IWGRP | libc::S_IWOTH) != 0
}
