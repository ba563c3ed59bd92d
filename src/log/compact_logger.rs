//! Where defmt puts the frames that its macros make: into the log's buffer.

#![expect(unsafe_code, reason = "defmt wants it of every logger")]

use crate::log;

#[defmt::global_logger]
struct Logger;

// SAFETY: the log is one thread's own, each of its functions ends what it does before it returns, and
// the macros that lead here are never called while a frame is under way (see `log::frame`).
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        log::begin();
    }

    unsafe fn flush() {
        log::flush();
    }

    unsafe fn release() {
        log::end();
    }

    unsafe fn write(bytes: &[u8]) {
        log::extend(bytes);
    }
}

/// Never called: it belongs to macros of defmt that are not used here.
#[defmt::panic_handler]
fn panic() -> ! {
    std::process::abort()
}
