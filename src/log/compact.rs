//! Frames of defmt: for each line the number of its text, which stays with the program's symbols, the
//! time, and the arguments. `defmt-print` makes lines of them.
//!
//! A frame has a delimiter at both ends, so that a damaged byte costs no more than the frame it is in.

#![expect(unsafe_code, reason = "defmt wants it of every logger")]

use core::mem;

use defmt::Encoder;
use heapless::Vec;

use super::{Level, MAX_LINE, with_logger};
use crate::sys::clock;

macro_rules! error { ($($line:tt)+) => { $crate::log::frame($crate::log::Level::Error, || defmt::error!($($line)+)) } }
macro_rules! warning { ($($line:tt)+) => { $crate::log::frame($crate::log::Level::Warning, || defmt::warn!($($line)+)) } }
macro_rules! info { ($($line:tt)+) => { $crate::log::frame($crate::log::Level::Info, || defmt::info!($($line)+)) } }
macro_rules! debug { ($($line:tt)+) => { $crate::log::frame($crate::log::Level::Debug, || defmt::debug!($($line)+)) } }
pub(crate) use {debug, error, info, warning};

// As in lines of text.
defmt::timestamp!(
    "{0=36..48}-{0=32..36:02}-{0=27..32:02} {0=22..27:02}:{0=16..22:02}:{0=10..16:02}.{0=0..10:03}",
    clock::local_time().packed()
);

/// The state of the encoder.
pub(super) struct Encoding {
    encoder: Encoder,
    frame: Vec<u8, MAX_LINE>,
    is_whole: bool,
    is_free: bool,
}

impl Encoding {
    pub(super) fn new() -> Self {
        Self { encoder: Encoder::new(), frame: Vec::new(), is_whole: true, is_free: true }
    }

    /// Whether a line may be logged now: not within another.
    pub(super) fn is_free(&self) -> bool {
        self.is_free
    }

    /// Appends what the encoder makes of a step.
    fn encode(&mut self, step: impl FnOnce(&mut Encoder, &mut dyn FnMut(&[u8]))) {
        let Self { encoder, frame, is_whole, .. } = self;
        step(encoder, &mut |bytes| *is_whole &= frame.extend_from_slice(bytes).is_ok());
    }
}

/// Logs version, pid and router once, which would be half of each frame.
pub(super) fn write_banner() {
    if let Some((pid, router)) = with_logger(|logger| (logger.pid, logger.log.router.clone())) {
        info!("keepwatch {}, pid {}, router {}", env!("CARGO_PKG_VERSION"), pid, router);
    }
}

/// Adds a line. Use the macros.
pub(crate) fn frame(level: Level, log: impl FnOnce()) {
    if is_wanted(level) {
        log();
    }
}

// Once in the program, and not in every place that logs.
#[inline(never)]
fn is_wanted(level: Level) -> bool {
    with_logger(|logger| level <= logger.log.level && logger.encoding.is_free()) == Some(true)
}

#[defmt::global_logger]
struct Global;

// SAFETY: the log belongs to one thread, and each of these functions ends what it does before it returns. A
// frame never begins within another one: see `frame`.
unsafe impl defmt::Logger for Global {
    fn acquire() {
        with_logger(|logger| {
            // Only a new encoder begins with a delimiter.
            logger.encoding = Encoding { is_free: false, ..Encoding::new() };
            logger.encoding.encode(|encoder, write| encoder.start_frame(write));
        });
    }

    unsafe fn flush() {
        super::flush();
    }

    /// A frame that does not fit is lost, as half of it could not be decoded; but [`super::DisplayArg`] sees to
    /// it that all fit.
    unsafe fn release() {
        with_logger(|logger| {
            logger.encoding.encode(|encoder, write| encoder.end_frame(write));
            let Encoding { frame, is_whole, .. } =
                mem::replace(&mut logger.encoding, Encoding::new());
            if is_whole {
                logger.enqueue(&frame);
            }
        });
    }

    unsafe fn write(bytes: &[u8]) {
        with_logger(|logger| logger.encoding.encode(|encoder, write| encoder.write(bytes, write)));
    }
}

/// Never called: it belongs to macros of defmt that are not used here.
#[defmt::panic_handler]
fn panic() -> ! {
    std::process::abort()
}
