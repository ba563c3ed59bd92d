//! Whom files and processes may belong to.

use std::fs;

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
    let number = |text: &str| text.trim().parse().ok();
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    let overflow: u32 = number(&overflow).unwrap_or(65_534);
    // Each line: the first number inside, the first outside, how many.
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let is_somebody = map.lines().any(|line| {
        let mut words = line.split_whitespace().map(number);
        let (first, count) = (words.next().flatten(), words.nth(1).flatten());
        first.zip(count).is_some_and(|(first, count)| {
            overflow.checked_sub(first).is_some_and(|place| place < count)
        })
    });
    (!is_somebody).then_some(overflow)
}
