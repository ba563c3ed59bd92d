//! The memory of another process.

#![expect(unsafe_code, reason = "process_madvise, which no library has")]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;

use crate::files::content;

/// Has the kernel take back what it can of a process's memory, and of the pages of its program.
pub fn reclaim(pid: u32, program: &Path) {
    const MADV_PAGEOUT: libc::c_int = 21;
    // SAFETY: a system call without pointers, which makes a descriptor.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = i32::try_from(Errno::result(process).unwrap()).unwrap();
    // SAFETY: nobody else has it.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    for line in content(Path::new(&format!("/proc/{}/maps", pid))).lines() {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|address| usize::from_str_radix(address, 16).unwrap());
        let range = libc::iovec { iov_base: begin as *mut libc::c_void, iov_len: end - begin };
        // What is locked, or the kernel's own, is refused.
        // SAFETY: the kernel reads the range, which is of another process.
        unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_raw_fd(),
                &raw const range,
                1,
                MADV_PAGEOUT,
                0,
            )
        };
    }
    drop_cached(program);
}

/// Has the kernel drop the pages of a file that nobody has mapped.
pub fn drop_cached(file: &Path) {
    let file = File::open(file).unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
}
