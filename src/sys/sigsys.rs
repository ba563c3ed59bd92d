//! What the handler of a seccomp violation writes before it ends the process: with write(2) and sendto(2)
//! alone, as the log may be in use.

#![expect(unsafe_code, reason = "a descriptor and an address from before")]

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::os::fd::{BorrowedFd, RawFd};

use heapless::Vec;
use nix::sys::socket::{MsgFlags, UnixAddr, sendto};
use nix::unistd::write;

use super::stderr::write_stderr;

/// The log file; -1: there is none.
static LOG: AtomicI32 = AtomicI32::new(-1);

/// A socket to the system's log, and the address of that; -1 and null: there is none.
static SYSLOG: AtomicI32 = AtomicI32::new(-1);
static SYSLOG_ADDRESS: AtomicPtr<UnixAddr> = AtomicPtr::new(null_mut());

/// Sets the log file to write to.
pub fn set_log_file(fd: RawFd) {
    LOG.store(fd, Ordering::Relaxed);
}

/// Sets the system's log to send to.
pub fn set_syslog(fd: RawFd, address: &'static UnixAddr) {
    SYSLOG.store(fd, Ordering::Relaxed);
    SYSLOG_ADDRESS.store(from_ref(address).cast_mut(), Ordering::Relaxed);
}

/// Says which system call was not allowed, to standard error and into the log.
pub fn report_violation(call: u32) {
    let line = line(call);
    write_stderr(&line);
    let log = LOG.load(Ordering::Relaxed);
    if log >= 0 {
        // SAFETY: open, or if it is not, the kernel says so.
        let log = unsafe { BorrowedFd::borrow_raw(log) };
        let _ = write(log, &line);
    }
    // SAFETY: null, or what `set_syslog` was given.
    if let Some(address) = unsafe { SYSLOG_ADDRESS.load(Ordering::Relaxed).as_ref() } {
        // Without a priority it is user.notice.
        let socket = SYSLOG.load(Ordering::Relaxed);
        let _ = sendto(socket, &line, address, MsgFlags::MSG_DONTWAIT);
    }
}

/// Frames of defmt end at a zero, so that in a log of these the line counts as one that is damaged.
const DELIMITER: &[u8] = if cfg!(feature = "defmt") { b"\0" } else { b"" };

fn line(call: u32) -> Vec<u8, 80> {
    let mut digits = [b'0'; 10];
    let mut rest = call;
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    let zeroes = digits.iter().take(9).take_while(|digit| **digit == b'0').count();
    let mut line = Vec::new();
    for part in [
        DELIMITER,
        b"keepwatch: ERROR: seccomp: system call ",
        digits.get(zeroes..).unwrap_or_default(),
        b" is not allowed; ending\n",
        DELIMITER,
    ] {
        let added = line.extend_from_slice(part);
        debug_assert!(added.is_ok(), "a line of known length");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length() {
        for call in [0, 7, 10, 4003, u32::MAX] {
            let text =
                format!("keepwatch: ERROR: seccomp: system call {call} is not allowed; ending\n");
            let line = line(call);
            assert_eq!(line.iter().filter(|byte| **byte != 0).count(), text.len());
            assert!(line.windows(text.len()).any(|part| part == text.as_bytes()), "{call}");
        }
    }
}
