//! Error numbers as values, for every layer.

#![expect(unsafe_code, reason = "strerror_r")]

use core::ffi::CStr;
use core::fmt;

use nix::errno::Errno as NixErrno;
use nix::libc;

/// What a system call failed with, as a positive `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Errno(pub i32);

impl From<NixErrno> for Errno {
    fn from(errno: NixErrno) -> Self {
        Self(errno as i32)
    }
}

impl From<std::io::Error> for Errno {
    /// An error that did not come from the system counts as `EIO`.
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(NixErrno::EIO as i32))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NixErrno::from_raw(self.0) {
            NixErrno::UnknownErrno => write!(f, "errno {}", self.0),
            known => write!(f, "{} ({known:?})", self.text(&mut [0; 64])),
        }
    }
}

impl Errno {
    /// `ENOENT`.
    pub const NOT_FOUND: Self = Self(libc::ENOENT);
    /// `ENODEV`.
    pub const NO_DEVICE: Self = Self(libc::ENODEV);

    /// In the words of libc, which are there anyway. nix has its own, of 8 kB, and std allocates.
    fn text<'a>(&self, buffer: &'a mut [u8; 64]) -> &'a str {
        // SAFETY: libc writes no more than the buffer's length, and a NUL at the end.
        unsafe { libc::strerror_r(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        CStr::from_bytes_until_nul(buffer).ok().and_then(|text| text.to_str().ok()).unwrap_or("")
    }
}
