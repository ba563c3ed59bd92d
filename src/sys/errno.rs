//! Where error numbers come from, and how they read.

#![expect(unsafe_code, reason = "strerror_r")]

use core::ffi::CStr;
use core::fmt;

use nix::errno::Errno as NixErrno;
use nix::libc;

use crate::errno::Errno;

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
            known => write!(f, "{} ({known:?})", text(*self, &mut [0; 64])),
        }
    }
}

/// libc's text: nix's table costs 8 kB, std allocates.
fn text(errno: Errno, buffer: &mut [u8; 64]) -> &str {
    // SAFETY: libc writes no more than the buffer's length, and a NUL at the end.
    unsafe { libc::strerror_r(errno.0, buffer.as_mut_ptr().cast(), buffer.len()) };
    CStr::from_bytes_until_nul(buffer).ok().and_then(|text| text.to_str().ok()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_libc_and_the_manual_have_it() {
        assert_eq!(Errno::from(NixErrno::ENOENT), Errno::NOT_FOUND);
        assert_eq!(Errno::NOT_FOUND.to_string(), "No such file or directory (ENOENT)");
        assert_eq!(Errno(4000).to_string(), "errno 4000");
        let not_of_the_system = std::io::Error::from(std::io::ErrorKind::WriteZero);
        assert_eq!(Errno::from(not_of_the_system), Errno::from(NixErrno::EIO));
    }
}
