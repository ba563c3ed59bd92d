//! Frames of defmt: for each line the number of its text, which stays with the program's symbols, the
//! time, and the arguments. `defmt-print` makes lines of them.
//!
//! A frame has a delimiter at both ends, so that a damaged byte costs no more than the frame it is in.

#![expect(unsafe_code, reason = "defmt wants it of every logger")]

use defmt::Encoder;
use heapless::Vec;

use super::{Level, MAX_LINE, with_logger};
use crate::sys::clock;

macro_rules! error { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Error, || defmt::error!($($line)+)) } }
macro_rules! warning { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Warning, || defmt::warn!($($line)+)) } }
macro_rules! info { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Info, || defmt::info!($($line)+)) } }
macro_rules! debug { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Debug, || defmt::debug!($($line)+)) } }
pub(crate) use {debug, error, info, warning};

// As in lines of text. A decoder does not survive a damaged time with the hint `iso8601ms`.
defmt::timestamp!(
    "{0=36..48}-{0=32..36:02}-{0=27..32:02} {0=22..27:02}:{0=16..22:02}:{0=10..16:02}.{0=0..10:03}",
    clock::local_time().packed()
);

pub(super) struct Frame {
    encoder: Encoder,
    bytes: Vec<u8, MAX_LINE>,
    fits: bool,
}

impl Frame {
    pub(super) fn new() -> Self {
        Self { encoder: Encoder::new(), bytes: Vec::new(), fits: true }
    }

    /// Appends the output of a step of the encoder.
    fn encode(&mut self, step: impl FnOnce(&mut Encoder, &mut dyn FnMut(&[u8]))) {
        let Self { encoder, bytes, fits } = self;
        step(encoder, &mut |encoded| *fits &= bytes.extend_from_slice(encoded).is_ok());
    }
}

/// Logs version, pid and router once, which would be half of each frame.
pub(super) fn write_banner() {
    if let Some((pid, router)) = with_logger(|logger| (logger.pid, logger.log.router.clone())) {
        info!("keepwatch {}, pid {}, router {}", env!("CARGO_PKG_VERSION"), pid, router.as_str());
    }
}

/// Adds a line. Use the macros.
pub(crate) fn line(level: Level, log: impl FnOnce()) {
    if with_logger(|logger| level <= logger.log.level) == Some(true) {
        log();
    }
}

#[defmt::global_logger]
struct Global;

// SAFETY: the program has one thread, and no implementation of `Format` logs, so frames neither overlap nor nest.
unsafe impl defmt::Logger for Global {
    fn acquire() {
        with_logger(|logger| {
            // Only a new encoder begins with a delimiter.
            logger.frame = Frame::new();
            logger.frame.encode(|encoder, write| encoder.start_frame(write));
        });
    }

    unsafe fn flush() {
        super::flush();
    }

    /// A frame that does not fit is dropped, as half of it could not be decoded.
    unsafe fn release() {
        with_logger(|logger| {
            logger.frame.encode(|encoder, write| encoder.end_frame(write));
            let Frame { bytes, fits, .. } = core::mem::replace(&mut logger.frame, Frame::new());
            if fits {
                logger.enqueue(&bytes);
            }
        });
    }

    unsafe fn write(bytes: &[u8]) {
        with_logger(|logger| logger.frame.encode(|encoder, write| encoder.write(bytes, write)));
    }
}

/// Never called: it belongs to macros of defmt that are not used here.
#[defmt::panic_handler]
fn panic() -> ! {
    std::process::abort()
}
