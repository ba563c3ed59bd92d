//! Conversions to [`Errno`], and its text.

use core::fmt;

use nix::errno::Errno as NixErrno;

use crate::errno::Errno;

impl From<NixErrno> for Errno {
    fn from(errno: NixErrno) -> Self {
        Self(errno as i32)
    }
}

impl From<std::io::Error> for Errno {
    /// An error without an errno becomes `EIO`.
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(NixErrno::EIO as i32))
    }
}

impl Errno {
    /// Returns whether another user may be allowed what this one is not.
    pub(crate) fn is_denial(self) -> bool {
        matches!(NixErrno::from_raw(self.0), NixErrno::EACCES | NixErrno::EPERM)
    }

    /// Returns whether the same system call may succeed at once: a signal came, or memory was short.
    pub(crate) fn is_temporary(self) -> bool {
        use NixErrno::{EINTR, ENOBUFS, ENOMEM};
        matches!(NixErrno::from_raw(self.0), EINTR | ENOMEM | ENOBUFS)
    }

    /// Returns whether a later start may succeed without an administrator: something was short, or a disk failed.
    pub(crate) fn may_pass(self) -> bool {
        use NixErrno::{EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE};
        matches!(
            NixErrno::from_raw(self.0),
            EAGAIN | EINTR | EIO | EMFILE | ENFILE | ENOMEM | ESTALE
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NixErrno::from_raw(self.0) {
            NixErrno::UnknownErrno => write!(f, "errno {}", self.0),
            known => write!(f, "{} ({known:?})", known.desc()),
        }
    }
}
