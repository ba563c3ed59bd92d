//! C strings of paths, and reading and splitting small files.

#![expect(unsafe_code, reason = "readlink")]

use core::ffi::CStr;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::read;

/// A path as a C string.
///
/// # Errors
/// `EINVAL` if it contains a NUL.
pub(super) fn c_path(path: &Path) -> nix::Result<CString> {
    c_string(path.as_os_str().as_bytes())
}

// Once in the program, and not for every kind of string.
#[inline(never)]
pub(super) fn c_string(bytes: &[u8]) -> nix::Result<CString> {
    CString::new(bytes).map_err(|_| NixErrno::EINVAL)
}

/// The target of a symlink.
///
/// # Errors
/// The errno of `readlink`, or `ENAMETOOLONG`.
#[inline(never)]
pub(super) fn read_link(path: &CStr) -> nix::Result<CString> {
    let mut target = vec![0_u8; PATH_MAX];
    // SAFETY: the kernel writes no more than the length.
    let length = unsafe { libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let length = usize::try_from(NixErrno::result(length)?).unwrap_or_default();
    target.get(..length).filter(|_| length < PATH_MAX).map_or(Err(NixErrno::ENAMETOOLONG), c_string)
}

/// The longest path, with its NUL (`include/uapi/linux/limits.h`).
const PATH_MAX: usize = 4096;

/// Splits an absolute path into the directory, with its trailing slash, and the name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    path.split_at(path.len() - name.len())
}

/// The directory that an absolute path is in.
pub fn parent(path: &Path) -> &Path {
    let (directory, _) = split(path.as_os_str().as_bytes());
    // Without the slash, unless it is all.
    let bare = directory.strip_suffix(b"/").filter(|bare| !bare.is_empty());
    Path::new(OsStr::from_bytes(bare.unwrap_or(directory)))
}

/// Reads a file. Returns nothing if it cannot be opened.
pub(super) fn content(path: &CStr) -> Vec<u8> {
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    file.map(|file| read_to_end(file.as_fd())).unwrap_or_default()
}

/// Reads up to the end or an error.
#[inline(never)]
pub(super) fn read_to_end(file: BorrowedFd<'_>) -> Vec<u8> {
    let (mut content, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        match read(file, &mut buffer) {
            Ok(length @ 1..) => content.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(NixErrno::EINTR) => {}
            _ => return content,
        }
    }
}

pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a decimal number.
#[inline(never)]
pub(super) fn number(word: &[u8]) -> Option<u32> {
    str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_fit() {
        let cases: [(&[u8], _); 8] = [
            (b"", None),
            (b"0", Some(0)),
            (b"0042", Some(42)),
            (b"4294967295", Some(u32::MAX)),
            (b"4294967296", None),
            (b"-1", None),
            (b"1:", None),
            (b"1/", None),
        ];
        for (word, expected) in cases {
            assert_eq!(number(word), expected, "{word:?}");
        }
    }

    #[test]
    fn paths_are_split_behind_the_last_slash() {
        for (path, expected) in [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/", "/a/b")] {
            assert_eq!(parent(Path::new(path)), Path::new(expected), "{path}");
        }
        assert_eq!(split(b"/a/b"), (&b"/a/"[..], &b"b"[..]));
        assert_eq!(words(b" a\tb \n").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(lines(b"a\nb").collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
