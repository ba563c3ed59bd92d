//! Frames of defmt: for each line the number of its text, which stays with the program's symbols, the
//! time, and the arguments. `defmt-print` makes lines of them.
//!
//! A frame has a delimiter at both ends, so that a damaged byte costs no more than the frame it is in.

use core::mem;

use defmt::Encoder;
use heapless::Vec;

use super::{Level, MAX_LINE, Open, with_open};
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

/// What frames need.
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

    /// Takes what the encoder makes of it.
    fn encode(&mut self, step: impl FnOnce(&mut Encoder, &mut dyn FnMut(&[u8]))) {
        let Self { encoder, frame, is_whole, .. } = self;
        step(encoder, &mut |bytes| *is_whole &= frame.extend_from_slice(bytes).is_ok());
    }
}

/// Logs whose the log is from here on. Frames do not say it, because that would be half of each.
pub(super) fn introduce() {
    if let Some((pid, router)) = with_open(|open| (open.pid, open.log.router.clone())) {
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
    with_open(|open| level <= open.log.level && open.encoding.is_free()) == Some(true)
}

/// A frame begins.
pub(crate) fn begin() {
    with_open(|open| {
        // Only a new encoder begins with a delimiter.
        open.encoding = Encoding { is_free: false, ..Encoding::new() };
        open.encoding.encode(|encoder, write| encoder.start_frame(write));
    });
}

/// A frame goes on.
pub(crate) fn extend(bytes: &[u8]) {
    with_open(|open| open.encoding.encode(|encoder, write| encoder.write(bytes, write)));
}

/// The frame is complete. One that does not fit is lost, as half of it could not be decoded; but
/// [`super::DisplayArg`] sees to it that all fit.
pub(crate) fn end() {
    with_open(|open| {
        open.encoding.encode(|encoder, write| encoder.end_frame(write));
        let Encoding { frame, is_whole, .. } = mem::replace(&mut open.encoding, Encoding::new());
        if is_whole {
            Open::wait(open, &frame);
        }
    });
}
