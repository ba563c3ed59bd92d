//! Looking up users and groups: `passwd(5)`, `group(5)`. nix would copy each entry's other fields, too.

#![expect(unsafe_code, reason = "what the C library returns is a pointer")]

use std::ffi::CString;

use nix::libc;
use nix::unistd::{Gid, Uid};

/// Looks up a user by name or number. Returns the user, and the primary group unless the user has no entry,
/// which only a number can.
pub fn user(text: &str) -> Option<(Uid, Option<Gid>)> {
    let number = id(text);
    let name = CString::new(text).ok()?;
    // SAFETY: `name` ends with NUL. What is returned is null or an entry that stays until the next look-up.
    let entry = unsafe {
        match number {
            Some(number) => libc::getpwuid(number),
            None => libc::getpwnam(name.as_ptr()),
        }
        .as_ref()
    };
    let entry = entry.map(|entry| (Uid::from_raw(entry.pw_uid), Some(Gid::from_raw(entry.pw_gid))));
    entry.or_else(|| Some((Uid::from_raw(number?), None)))
}

/// Looks up a group by name; a number need not have an entry.
pub fn group(text: &str) -> Option<Gid> {
    let name = CString::new(text).ok()?;
    // SAFETY: as in `user`.
    let entry = unsafe { libc::getgrnam(name.as_ptr()).as_ref() };
    entry.map(|entry| entry.gr_gid).or_else(|| id(text)).map(Gid::from_raw)
}

/// The number of a user or group. -1 means "none" to `setresuid(2)`.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}
