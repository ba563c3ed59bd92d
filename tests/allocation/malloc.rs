//! An allocator that ends the process if it is called while that is forbidden.
//!
//! The functions replace libc's, so they see the allocations of Rust and of libc itself.

#![expect(unsafe_code, reason = "the functions of libc's allocator")]

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// The exit code of a process that has allocated or freed.
pub const ALLOCATED: i32 = 99;

static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Forbids allocations, or allows them again.
pub fn forbid(forbidden: bool) {
    FORBIDDEN.store(forbidden, Ordering::Relaxed);
}

fn called(function: &str) {
    if FORBIDDEN.load(Ordering::Relaxed) {
        for text in ["allocation: ", function, " was called\n"] {
            // SAFETY: the kernel reads the text.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: ends the process as it is.
        unsafe { libc::_exit(ALLOCATED) }
    }
}

// SAFETY: glibc's own functions, under the names for programs that replace them.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// Defines functions of libc that end the process or call glibc's.
macro_rules! forbid {
    ($($name:ident($($argument:ident: $type:ty),+) is $glibc:ident)+) => {$(
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            called(stringify!($name));
            // SAFETY: the caller guarantees it.
            unsafe { $glibc($($argument),+) }
        }
    )+};
}

forbid! {
    malloc(size: usize) is __libc_malloc
    calloc(count: usize, size: usize) is __libc_calloc
    realloc(memory: *mut c_void, size: usize) is __libc_realloc
    aligned_alloc(alignment: usize, size: usize) is __libc_memalign
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    memory: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    called("posix_memalign");
    // SAFETY: the caller guarantees it.
    unsafe { *memory = __libc_memalign(alignment, size) };
    // SAFETY: it has just been written.
    if unsafe { (*memory).is_null() } { libc::ENOMEM } else { 0 }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if !memory.is_null() {
        called("free");
    }
    // SAFETY: the caller guarantees it.
    unsafe { __libc_free(memory) }
}
