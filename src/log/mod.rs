//! The log: every line goes through the macros here.
//!
//! Lines are buffered and written together before the loop goes to sleep, so that a transition costs one
//! write. Nothing allocates, nothing blocks, and control characters from outside are escaped.
//!
//! Lines are text or, with feature `defmt`, frames. Log statements use the syntax that both have:
//! `{}`, and arguments behind the text.

#[cfg(feature = "defmt")]
mod compact;
mod describe;
mod line;
mod messages;
#[cfg(not(feature = "defmt"))]
mod text;

#[cfg(feature = "defmt")]
use compact as encoding;
#[cfg(not(feature = "defmt"))]
use text as encoding;

pub(crate) use describe::{DisplayArg, TroubleList};
pub(crate) use encoding::{debug, error, info, line, warning};

use core::cell::RefCell;

use heapless::Vec;

use crate::sys::clock;
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::stderr::write_stderr;
use crate::wire::http::RouterId;
#[cfg(feature = "defmt")]
use encoding::Frame;

/// The longest line in bytes; a longer one is cut.
const MAX_LINE: usize = 512;
/// Size of the buffer for lines, in bytes.
const BUFFER_SIZE: usize = 2048;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost: a change, a synchronisation, an announcement, or the daemon itself.
    Error,
    /// Something failed that is tried again, or needs attention elsewhere.
    Warning,
    /// A change, and its reports.
    Info,
    /// Every event.
    Debug,
}

/// Where lines go, and how they begin.
#[derive(Debug)]
pub struct Log {
    /// Names the daemon in every line.
    pub router: RouterId,
    /// The least severe level that is logged.
    pub level: Level,
    /// A file, if any.
    pub file: Option<LogFile>,
    /// Whether lines go to standard error.
    pub stderr: bool,
    /// Whether standard error is the journal, which has time and pid of its own for each line.
    pub journal: bool,
    /// The system's log, if wanted.
    pub syslog: Option<Syslog>,
}

struct Logger {
    log: Log,
    pid: u32,
    #[cfg(feature = "defmt")]
    frame: Frame,
    buffer: Vec<u8, BUFFER_SIZE>,
}

thread_local! {
    /// The log of the only thread.
    static LOGGER: RefCell<Option<Logger>> = const { RefCell::new(None) };
}

/// Starts logging. Lines before this are dropped.
pub fn open(log: Log) {
    // The first call reads the file of the time zone, which may not be permitted later.
    clock::local_time();
    LOGGER.set(Some(Logger {
        log,
        pid: std::process::id(),
        #[cfg(feature = "defmt")]
        frame: Frame::new(),
        buffer: Vec::new(),
    }));
    encoding::write_banner();
}

/// Reopens the log file, as it may have been moved away.
pub fn reopen() {
    flush();
    let reopened = with_logger(|logger| logger.log.file.as_mut().map(LogFile::reopen));
    if let Some(Some(Err(refusal))) = reopened {
        warning!("log file: {}; keeping the old one", DisplayArg(refusal));
    } else {
        encoding::write_banner();
    }
}

/// Escapes control characters, for a line that goes elsewhere than into the log.
pub fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escape).collect()
}

/// Writes the lines that are buffered.
pub fn flush() {
    with_logger(Logger::flush);
}

/// Returns `None` before [`open`], and for a line that is logged while another one is written.
fn with_logger<T>(use_it: impl FnOnce(&mut Logger) -> T) -> Option<T> {
    LOGGER.with(|logger| logger.try_borrow_mut().ok()?.as_mut().map(use_it))
}

impl Logger {
    fn enqueue(&mut self, line: &[u8]) {
        if self.buffer.extend_from_slice(line).is_err() {
            self.flush();
            // A single line always fits an empty buffer.
            let _ = self.buffer.extend_from_slice(line);
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if let Some(file) = &mut self.log.file {
            file.write(&self.buffer);
        }
        if self.log.stderr {
            write_stderr(&self.buffer);
        }
        self.buffer.clear();
    }
}
