//! Error numbers as values, for every layer.

use core::fmt;
use nix::errno::Errno as Known;

/// What a system call failed with, as a positive `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Errno(pub i32);

impl From<Known> for Errno {
    fn from(errno: Known) -> Self {
        Self(errno as i32)
    }
}

impl From<std::io::Error> for Errno {
    /// An error that did not come from the system counts as `EIO`.
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(Known::EIO as i32))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Known::from_raw(self.0) {
            Known::UnknownErrno => write!(f, "errno {}", self.0),
            known => write!(f, "{} ({known:?})", known.desc()),
        }
    }
}
