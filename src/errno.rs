//! Error numbers as plain values, for every layer. [`crate::sys`] translates them to text.

use serde::{Deserialize, Serialize};

/// The error of a system call, as a positive `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

impl Errno {
    /// `ENOENT` (`include/uapi/asm-generic/errno-base.h`).
    pub const NOT_FOUND: Self = Self(2);
    /// `EAGAIN` (the same file).
    pub const TRY_AGAIN: Self = Self(11);
    /// `EEXIST` (the same file).
    pub const EXISTS: Self = Self(17);
    /// `ENODEV` (the same file).
    pub const NO_DEVICE: Self = Self(19);
}
