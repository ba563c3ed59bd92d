//! Paths and socket addresses that the running daemon passes to system calls, in pages that are read-only for
//! good.
//!
//! A seccomp filter cannot read the memory that an argument points to, but can compare the pointer. As it allows
//! neither `mprotect` nor `mmap`, that memory stays as it is.

#![expect(unsafe_code, reason = "maps memory and makes it read-only")]

use core::ffi::CStr;
use core::mem::size_of;
use core::ptr::null_mut;
use core::slice;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_void};
use nix::sys::socket::UnixAddr;

use super::files::c_path;
use crate::errno::Errno;

/// The constants. Not every daemon has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// The address of the agent's socket.
    Agent,
    /// The directory of the agent's socket.
    AgentDirectory,
    /// The directory of the state file.
    ConfDir,
    /// The state file.
    State,
    /// The directory of the metrics file.
    MetricsDirectory,
    /// The metrics file.
    Metrics,
    /// The name of a new state or metrics file until it is renamed.
    NewFile,
    /// The log file.
    Log,
    /// The address of the syslog socket.
    Syslog,
    /// The pid file.
    PidFile,
    /// [`NO_PATH`]
    NoPath,
}

/// The path for `AT_EMPTY_PATH`. It is read-only from the start.
pub static NO_PATH: &CStr = c"";

/// Room for the longest paths that the kernel takes. Unused pages cost no memory.
const ROOM: usize = 9 * 4096;

/// The addresses of the constants, 0 for those that are missing.
pub type Addresses = [usize; Constant::NoPath as usize + 1];

/// The constants while they are being collected.
#[derive(Debug)]
pub struct Constants {
    start: *mut c_void,
    used: usize,
    addresses: Addresses,
}

impl Constants {
    /// Maps memory for them.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn new() -> Result<Self, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is never unmapped.
        let start = unsafe { libc::mmap(null_mut(), ROOM, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(NixErrno::last().into());
        }
        let mut addresses = Addresses::default();
        if let Some(address) = addresses.get_mut(Constant::NoPath as usize) {
            *address = NO_PATH.as_ptr().addr();
        }
        Ok(Self { start, used: 0, addresses })
    }

    /// Adds a path.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, or `EINVAL` if it contains a NUL.
    pub fn path(&mut self, constant: Constant, path: &Path) -> Result<&'static CStr, Errno> {
        let path = path.as_os_str().as_bytes();
        let bytes = self.add(constant, path.len() + 1)?;
        // New memory is zero, and so is the byte behind the path.
        bytes.iter_mut().zip(path).for_each(|(byte, value)| *byte = *value);
        Ok(CStr::from_bytes_with_nul(bytes).map_err(|_| NixErrno::EINVAL)?)
    }

    /// Adds the address of a Unix socket.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if the path is longer than 107 bytes or no room is left.
    pub fn address(&mut self, constant: Constant, path: &Path) -> Result<&'static UnixAddr, Errno> {
        let address = UnixAddr::new(c_path(path)?.as_c_str())?;
        let place: *mut c_void = self.add(constant, size_of::<UnixAddr>())?.as_mut_ptr().cast();
        let place = place.cast::<UnixAddr>();
        // SAFETY: the place has the size and alignment of a `UnixAddr` and no other user.
        unsafe {
            place.write(address);
            Ok(&*place)
        }
    }

    /// Reserves bytes, aligned to 8.
    fn add(&mut self, constant: Constant, length: usize) -> Result<&'static mut [u8], Errno> {
        let offset = self.used;
        if length > ROOM - offset {
            return Err(NixErrno::ENAMETOOLONG.into());
        }
        self.used = (offset + length).next_multiple_of(align_of::<u64>()).min(ROOM);
        // SAFETY: within the mapping, behind everything that was reserved before.
        let bytes =
            unsafe { slice::from_raw_parts_mut(self.start.cast::<u8>().add(offset), length) };
        if let Some(address) = self.addresses.get_mut(constant as usize) {
            *address = bytes.as_ptr().addr();
        }
        Ok(bytes)
    }

    /// Makes all of them read-only.
    ///
    /// # Errors
    /// The errno of `mprotect`.
    pub fn seal(self) -> Result<Addresses, Errno> {
        // SAFETY: all references that were handed out are shared ones.
        let sealed = unsafe { libc::mprotect(self.start, ROOM, libc::PROT_READ) };
        NixErrno::result(sealed)?;
        Ok(self.addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_stay_what_they_were() {
        let mut constants = Constants::new().unwrap();
        let log = constants.path(Constant::Log, Path::new("/var/log/l")).unwrap();
        let address = constants.address(Constant::Syslog, Path::new("/dev/log")).unwrap();
        let pid = constants.path(Constant::PidFile, Path::new("")).unwrap();
        let addresses = constants.seal().unwrap();
        assert_eq!((log, pid, *address), (c"/var/log/l", c"", UnixAddr::new("/dev/log").unwrap()));
        for (constant, expected) in [
            (Constant::Log, log.as_ptr().addr()),
            (Constant::Syslog, core::ptr::from_ref(address).addr()),
            (Constant::PidFile, pid.as_ptr().addr()),
            (Constant::Agent, 0),
        ] {
            assert_eq!(addresses[constant as usize], expected, "{constant:?}");
        }
    }

    #[test]
    fn too_much_of_it() {
        let mut constants = Constants::new().unwrap();
        let long = "x".repeat(ROOM - 9);
        assert!(constants.path(Constant::Log, Path::new(&long)).is_ok());
        assert!(constants.path(Constant::State, Path::new("1234567")).is_ok());
        let full = Err(Errno::from(NixErrno::ENAMETOOLONG));
        assert_eq!(constants.path(Constant::PidFile, Path::new("")), full);
        let mut constants = Constants::new().unwrap();
        let with_nul = constants.path(Constant::Log, Path::new("a\0b"));
        assert_eq!(with_nul, Err(Errno::from(NixErrno::EINVAL)));
    }
}
