//! The line that the handler of a seccomp violation writes before it ends the process. The log may be in use, so
//! it is written directly.

#![expect(unsafe_code, reason = "a descriptor and an address from before")]

use core::fmt::Write;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::os::fd::{BorrowedFd, RawFd};

use heapless::String;
use nix::sys::socket::{MsgFlags, UnixAddr, sendto};
use nix::unistd::write;

use super::stderr::write_stderr;

/// The log file, or -1.
static LOG: AtomicI32 = AtomicI32::new(-1);

/// A socket for syslog and the address to send to, or -1 and null.
static SYSLOG: AtomicI32 = AtomicI32::new(-1);
static SYSLOG_ADDRESS: AtomicPtr<UnixAddr> = AtomicPtr::new(null_mut());

/// Sets the log file to write to.
pub fn set_log_file(fd: RawFd) {
    LOG.store(fd, Ordering::Relaxed);
}

/// Sets the syslog socket and address to send to.
pub fn set_syslog(fd: RawFd, address: &'static UnixAddr) {
    SYSLOG.store(fd, Ordering::Relaxed);
    SYSLOG_ADDRESS.store(from_ref(address).cast_mut(), Ordering::Relaxed);
}

/// Reports to standard error and to the log which system call was not allowed.
pub fn report_violation(call: u32) {
    let line = line(call);
    let line = line.as_bytes();
    write_stderr(line);
    let log = LOG.load(Ordering::Relaxed);
    if log >= 0 {
        // SAFETY: `write` fails if it has been closed.
        let log = unsafe { BorrowedFd::borrow_raw(log) };
        let _ = write(log, line);
    }
    // SAFETY: null, or the static reference that `set_syslog` was given.
    if let Some(address) = unsafe { SYSLOG_ADDRESS.load(Ordering::Relaxed).as_ref() } {
        // Without a priority, syslog takes it for user.notice.
        let socket = SYSLOG.load(Ordering::Relaxed);
        let _ = sendto(socket, line, address, MsgFlags::MSG_DONTWAIT);
    }
}

/// A defmt frame ends with a zero byte. Between two, the line is skipped by a decoder as a damaged frame.
const DELIMITER: &str = if cfg!(feature = "defmt") { "\0" } else { "" };

fn line(call: u32) -> String<80> {
    let mut line = String::new();
    let written = write!(
        line,
        "{DELIMITER}keepwatch: ERROR: seccomp: system call {call} is not allowed; ending\n{DELIMITER}"
    );
    debug_assert!(written.is_ok(), "a line of known length");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_line_fits() {
        let text = format!("seccomp: system call {} is not allowed; ending\n", u32::MAX);
        assert!(line(u32::MAX).trim_end_matches('\0').ends_with(&text));
    }
}
