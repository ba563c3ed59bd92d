//! Users and groups by their names.

#[cfg(target_env = "gnu")]
pub use nix::unistd::{Group, User};

#[cfg(not(target_env = "gnu"))]
pub use files::{Group, User};

/// What `/etc/passwd` and `/etc/group` say, by the names that nix has for it. musl asks nobody else either, but
/// for a name service cache daemon, and takes 8 kB to do so.
#[cfg(any(test, not(target_env = "gnu")))]
#[expect(clippy::unnecessary_wraps, reason = "as nix has it")]
mod files {
    use core::ffi::CStr;

    use nix::unistd::{Gid, Uid};

    use super::super::files::{content, lines, number};

    /// A user.
    #[derive(Debug)]
    pub struct User {
        /// The number.
        pub uid: Uid,
        /// That of the user's own group.
        pub gid: Gid,
    }

    /// A group.
    #[derive(Debug)]
    pub struct Group {
        /// The number.
        pub gid: Gid,
    }

    impl User {
        /// The user of a name.
        pub fn from_name(name: &str) -> nix::Result<Option<Self>> {
            Ok(Self::find(0, name))
        }

        /// The user of a number.
        pub fn from_uid(uid: Uid) -> nix::Result<Option<Self>> {
            Ok(Self::find(2, &uid.to_string()))
        }

        fn find(place: usize, word: &str) -> Option<Self> {
            let [uid, gid] = find(c"/etc/passwd", place, word)?;
            Some(Self { uid: Uid::from_raw(uid?), gid: Gid::from_raw(gid?) })
        }
    }

    impl Group {
        /// The group of a name.
        pub fn from_name(name: &str) -> nix::Result<Option<Self>> {
            let gid = find(c"/etc/group", 0, name).and_then(|[gid, _]| gid);
            Ok(gid.map(|gid| Self { gid: Gid::from_raw(gid) }))
        }
    }

    /// The two numbers in the first line that has a word in this place.
    #[inline(never)]
    fn find(file: &CStr, place: usize, word: &str) -> Option<[Option<u32>; 2]> {
        lines(&content(file)).find_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            fields.clone().nth(place).filter(|field| *field == word.as_bytes())?;
            let mut number = |skipped| fields.nth(skipped).and_then(number);
            Some([number(2), number(0)])
        })
    }

    #[cfg(test)]
    mod tests {
        use nix::unistd;

        use super::*;

        #[test]
        fn those_whom_the_system_knows() {
            for name in ["root", "nobody", "nobod", ""] {
                let known = unistd::User::from_name(name).unwrap().map(|user| (user.uid, user.gid));
                let found = User::from_name(name).unwrap().map(|user| (user.uid, user.gid));
                assert_eq!(found, known, "{name}");
                if let Some((uid, gid)) = known {
                    assert_eq!(User::from_uid(uid).unwrap().map(|user| user.gid), Some(gid));
                }
            }
            for name in ["root", "nogroup", "roo", ""] {
                let known = unistd::Group::from_name(name).unwrap().map(|group| group.gid);
                assert_eq!(Group::from_name(name).unwrap().map(|group| group.gid), known, "{name}");
            }
            assert!(User::from_uid(Uid::from_raw(4_000_000_001)).unwrap().is_none());
        }
    }
}
