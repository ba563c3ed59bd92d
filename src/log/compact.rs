//! Frames of defmt: each has the time, the number of a text among the program's symbols, and the arguments.
//! `defmt-print` decodes them.
//!
//! A frame has a delimiter at both ends, so that a damaged byte spoils only its own frame.

#![expect(unsafe_code, reason = "defmt requires it of every logger")]

use core::fmt::{Display, Write as _};

use defmt::Encoder;
use heapless::Vec;

use super::{Level, Line, MAX_LINE, with_logger};
use crate::sys::clock;

macro_rules! error { ($text:literal $(, $arg:expr)* $(,)?) => { $crate::log::line($crate::log::Level::Error, || defmt::error!($text $(, $crate::log::DisplayArg(&$arg))*)) } }
macro_rules! warning { ($text:literal $(, $arg:expr)* $(,)?) => { $crate::log::line($crate::log::Level::Warning, || defmt::warn!($text $(, $crate::log::DisplayArg(&$arg))*)) } }
macro_rules! info { ($text:literal $(, $arg:expr)* $(,)?) => { $crate::log::line($crate::log::Level::Info, || defmt::info!($text $(, $crate::log::DisplayArg(&$arg))*)) } }
macro_rules! debug { ($text:literal $(, $arg:expr)* $(,)?) => { $crate::log::line($crate::log::Level::Debug, || defmt::debug!($text $(, $crate::log::DisplayArg(&$arg))*)) } }
pub(crate) use {debug, error, info, warning};

/// An argument as text of bounded length, with control characters escaped.
pub(crate) struct DisplayArg<T>(pub(crate) T);

impl<T: Display> defmt::Format for DisplayArg<T> {
    fn format(&self, f: defmt::Formatter<'_>) {
        let mut text = Line::<{ MAX_LINE * 3 / 4 }>::default();
        // A failed write means that a long text was cut.
        let _ = write!(text, "{}", self.0);
        defmt::write!(f, "{=str}", text.as_str());
    }
}

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

/// Logs version, pid and router once: in every frame they would take half of it.
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

    /// Drops a frame that does not fit, as a part of it could not be decoded.
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

/// Required by defmt, but only called by macros that are not used here.
#[defmt::panic_handler]
fn panic() -> ! {
    std::process::abort()
}
