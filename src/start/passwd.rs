//! Looks up users and groups (`passwd(5)`, `group(5)`).

use std::ffi::CString;

use nix::errno::Errno as NixErrno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// Returns a user, given by name or number, with the primary group. A number without an entry has no group.
pub fn user(text: &str) -> nix::Result<Option<(Uid, Option<Gid>)>> {
    let number = id(text).map(Uid::from_raw);
    let entry = found(number.map_or_else(|| User::from_name(text), User::from_uid))?;
    Ok(entry.map(|user| (user.uid, Some(user.gid))).or(number.map(|number| (number, None))))
}

/// Returns the name of a user, or the number of one without an entry.
pub fn name(user: u32) -> String {
    let entry = User::from_uid(Uid::from_raw(user)).ok().flatten();
    entry.map_or_else(|| user.to_string(), |user| user.name)
}

/// Returns a group, given by name or number. A number need not have an entry.
pub fn group(text: &str) -> nix::Result<Option<Gid>> {
    let entry = found(Group::from_name(text))?;
    Ok(entry.map(|group| group.gid).or_else(|| id(text).map(Gid::from_raw)))
}

/// Returns the groups of a user, including `group`. A user without an entry has no other.
pub fn groups(user: Uid, group: Gid) -> nix::Result<Vec<Gid>> {
    let entry = found(User::from_uid(user))?;
    let name = entry.and_then(|user| CString::new(user.name).ok());
    name.map_or_else(|| Ok(vec![group]), |name| getgrouplist(&name, group))
}

/// Returns the entry that a search has found, if any. The C libraries also report its absence by an error (`getpwnam(3)`).
fn found<T>(entry: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    use NixErrno::{EBADF, ENOENT, EPERM, ESRCH};
    entry.or_else(|errno| match errno {
        EBADF | ENOENT | EPERM | ESRCH => Ok(None),
        _ => Err(errno),
    })
}

/// Parses a user or group number. -1 means "unchanged" to `setresuid(2)`.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}
