//! The memory of another process.

#![expect(unsafe_code, reason = "process_madvise, which no library has")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;

use crate::ending::pidfd;
use crate::files::content;

/// Makes the kernel reclaim the memory of a process and the cached pages of its program.
pub fn reclaim(pid: u32, program: &Path) {
    const MADV_PAGEOUT: libc::c_int = 21;
    let process = pidfd(pid).expect("a process");
    for line in content(Path::new(&format!("/proc/{}/maps", pid))).lines() {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|address| usize::from_str_radix(address, 16).unwrap());
        let range = libc::iovec { iov_base: begin as *mut libc::c_void, iov_len: end - begin };
        // The kernel refuses locked ranges and its own.
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

/// Makes the kernel drop the cached pages of a file, except for mapped ones.
pub fn drop_cached(file: &Path) {
    let file = File::open(file).unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
}
