//! Whom files and processes may belong to.

use std::fs::File;
use std::io::Read;

use nix::unistd::{Uid, geteuid};

/// Root, whoever the daemon is, and whoever it will be.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    own: u32,
    user: Option<u32>,
    unknown: Option<u32>,
}

impl Trusted {
    /// `user` is whom to become.
    pub fn new(user: Option<Uid>) -> Self {
        let user = user.map(Uid::as_raw);
        Self { own: geteuid().as_raw(), user, unknown: unknown() }
    }

    /// Whether that is one of them.
    pub fn includes(self, user: u32) -> bool {
        let known = Some(user) != self.unknown;
        known && (user == 0 || user == self.own || Some(user) == self.user)
    }
}

/// The number as which the users show that a user namespace has no number for, unless that is somebody's.
pub fn unknown() -> Option<u32> {
    let overflow = content("/proc/sys/kernel/overflowuid");
    let overflow = words(&overflow).next().and_then(number).unwrap_or(65_534);
    // Three at a time: the first number inside, the first outside, how many.
    let map = content("/proc/self/uid_map");
    let mut map = words(&map).map(number);
    while let Some(first) = map.next() {
        let (first, count) = (first?, map.nth(1)??);
        if overflow.checked_sub(first).is_some_and(|place| place < count) {
            return None;
        }
    }
    Some(overflow)
}

/// The content of a file in `/proc`; empty if it is not there.
#[inline(never)]
pub(super) fn content(path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    let _ = File::open(path).and_then(|mut file| file.read_to_end(&mut content));
    content
}

pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[inline(never)]
pub(super) fn number(word: &[u8]) -> Option<u32> {
    word.iter().try_fold(0_u32, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}
