//! Looks up users and groups (`passwd(5)`, `group(5)`).

use nix::unistd::{Gid, Uid};

#[cfg(not(target_env = "gnu"))]
use files as database;
#[cfg(target_env = "gnu")]
use name_service as database;

/// Looks up a user by name or number. Returns the user with the primary group. A number need not have an entry,
/// and has no group then.
pub fn user(text: &str) -> Option<(Uid, Option<Gid>)> {
    let number = id(text);
    let entry = match number {
        Some(number) => database::user_of_number(number),
        None => database::user_of_name(text),
    };
    match entry {
        Some([user, group]) => Some((Uid::from_raw(user), Some(Gid::from_raw(group)))),
        None => Some((Uid::from_raw(number?), None)),
    }
}

/// Looks up a group by name; a number need not have an entry.
pub fn group(text: &str) -> Option<Gid> {
    database::group_of_name(text).or_else(|| id(text)).map(Gid::from_raw)
}

/// The groups of a user, the one to run as first. Who has no entry has no other.
pub fn groups(user: Uid, group: Gid) -> Vec<u32> {
    let mut groups = vec![group.as_raw()];
    database::add_groups(user.as_raw(), &mut groups);
    groups
}

/// Parses a user or group number. -1 means "unchanged" to `setresuid(2)`.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

/// By the C library's name service. nix would copy all fields of an entry.
#[cfg(target_env = "gnu")]
mod name_service {
    #![expect(unsafe_code, reason = "what the C library returns is a pointer")]

    use std::ffi::{CStr, CString};

    use nix::libc;
    use nix::unistd::{Gid, getgrouplist};

    /// The user's number, and that of the primary group.
    pub(super) fn user_of_name(name: &str) -> Option<[u32; 2]> {
        let name = CString::new(name).ok()?;
        // SAFETY: `name` ends with NUL. The result is null or valid until the next lookup.
        let entry = unsafe { libc::getpwnam(name.as_ptr()).as_ref() };
        entry.map(|entry| [entry.pw_uid, entry.pw_gid])
    }

    pub(super) fn user_of_number(number: u32) -> Option<[u32; 2]> {
        // SAFETY: as in `user_of_name`.
        let entry = unsafe { libc::getpwuid(number).as_ref() };
        entry.map(|entry| [entry.pw_uid, entry.pw_gid])
    }

    pub(super) fn group_of_name(name: &str) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: as in `user_of_name`.
        let entry = unsafe { libc::getgrnam(name.as_ptr()).as_ref() };
        entry.map(|entry| entry.gr_gid)
    }

    /// Adds all groups of a user.
    pub(super) fn add_groups(user: u32, groups: &mut Vec<u32>) {
        // SAFETY: as in `user_of_name`.
        let Some(entry) = (unsafe { libc::getpwuid(user).as_ref() }) else { return };
        // SAFETY: the entry is still there, and its name is a string.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        let first = groups.first().copied().unwrap_or_default();
        let all = getgrouplist(name, Gid::from_raw(first)).unwrap_or_default();
        groups.extend(all.into_iter().map(Gid::as_raw).filter(|group| *group != first));
    }
}

/// By `/etc/passwd` and `/etc/group`. musl's own functions cost 8 kB, to ask a name service cache daemon too.
#[cfg(any(test, not(target_env = "gnu")))]
mod files {
    use core::ffi::CStr;

    use super::super::files::{content, lines, number};

    pub(super) fn user_of_name(name: &str) -> Option<[u32; 2]> {
        let [user, group] = find(c"/etc/passwd", 0, name)?;
        Some([user?, group?])
    }

    pub(super) fn user_of_number(number: u32) -> Option<[u32; 2]> {
        let [user, group] = find(c"/etc/passwd", 2, &number.to_string())?;
        Some([user?, group?])
    }

    pub(super) fn group_of_name(name: &str) -> Option<u32> {
        find(c"/etc/group", 0, name)?[0]
    }

    /// Adds the groups that list a user.
    pub(super) fn add_groups(user: u32, groups: &mut Vec<u32>) {
        let users = content(c"/etc/passwd");
        let mut users = lines(&users).filter(|line| number_in(line, 2) == Some(user));
        let Some(name) = users.next().and_then(|line| parts(line, b':').next()) else { return };
        for line in lines(&content(c"/etc/group")) {
            let members = parts(line, b':').nth(3).unwrap_or_default();
            if let Some(group) = number_in(line, 2)
                && parts(members, b',').any(|member| member == name)
                && !groups.contains(&group)
            {
                groups.push(group);
            }
        }
    }

    fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
        text.split(move |byte| *byte == separator)
    }

    #[inline(never)]
    fn number_in(line: &[u8], place: usize) -> Option<u32> {
        parts(line, b':').nth(place).and_then(number)
    }

    /// The third and fourth field, as numbers, of the first line with `word` in field `place`.
    #[inline(never)]
    fn find(file: &CStr, place: usize, word: &str) -> Option<[Option<u32>; 2]> {
        let content = content(file);
        let is_it = |line: &&[u8]| parts(line, b':').nth(place) == Some(word.as_bytes());
        let line = lines(&content).find(is_it)?;
        Some([number_in(line, 2), number_in(line, 3)])
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn files_know_whom_the_system_knows() {
        for name in ["root", "nobody", "nobod", ""] {
            let known = name_service::user_of_name(name);
            assert_eq!(files::user_of_name(name), known, "{name}");
            if let Some([user, _]) = known {
                assert_eq!(files::user_of_number(user), known);
            }
        }
        for name in ["root", "nogroup", "roo", ""] {
            assert_eq!(files::group_of_name(name), name_service::group_of_name(name), "{name}");
        }
        assert_eq!(files::user_of_number(4_000_000_001), None);
        for user in (0..100).chain([65_534, 4_000_000_001]) {
            let [mut known, mut read] = [(); 2].map(|()| vec![54_321]);
            name_service::add_groups(user, &mut known);
            files::add_groups(user, &mut read);
            known.sort_unstable();
            read.sort_unstable();
            assert_eq!(read, known, "{user}");
        }
    }
}
