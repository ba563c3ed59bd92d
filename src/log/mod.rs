//! The log: every line goes through the macros here.
//!
//! A line is put into a buffer and written with its neighbours before the loop goes to sleep, so that
//! a transition costs one write. Nothing allocates, nothing waits, and control characters from
//! outside are escaped.
//!
//! Lines are text or, with feature `defmt`, frames. What is logged keeps to what both understand:
//! `{}` and `{:?}`, and arguments behind the text.

#[cfg(feature = "defmt")]
mod compact;
#[cfg(feature = "defmt")]
mod compact_logger;
mod describe;
#[cfg(feature = "defmt")]
mod format;
mod line;
mod messages;
#[cfg(not(feature = "defmt"))]
mod text;

#[cfg(feature = "defmt")]
use compact as encoding;
#[cfg(not(feature = "defmt"))]
use text as encoding;

pub(crate) use describe::DisplayArg;
#[cfg(not(feature = "defmt"))]
pub(crate) use encoding::line;
#[cfg(feature = "defmt")]
pub(crate) use encoding::{begin, end, extend, frame};
pub(crate) use encoding::{debug, error, info, warning};
pub use messages::LogContext;

use core::cell::RefCell;

use heapless::Vec;

use crate::sys::clock;
use crate::sys::log_sink::{LogFile, Syslog};
use crate::sys::stderr::write_stderr;
use crate::wire::http::RouterId;
#[cfg(feature = "defmt")]
use encoding::Encoding;

/// The longest line in bytes; what is longer is cut.
const MAX_LINE: usize = 512;
/// Lines that wait to be written, in bytes.
const MAX_WAITING: usize = 2048;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something may need attention.
    Warning,
    /// What the daemon is for.
    Info,
    /// Every event.
    Debug,
}

/// Where lines go and what they begin with.
#[derive(Debug)]
pub struct Log {
    /// Names the daemon in every line.
    pub router: RouterId,
    /// The least that is logged.
    pub level: Level,
    /// A file, if any.
    pub file: Option<LogFile>,
    /// Whether standard error gets the lines too.
    pub stderr: bool,
    /// The system's log, if wanted.
    pub syslog: Option<Syslog>,
}

struct Open {
    log: Log,
    pid: u32,
    #[cfg(feature = "defmt")]
    encoding: Encoding,
    waiting: Vec<u8, MAX_WAITING>,
}

thread_local! {
    /// The one thread's log.
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Begins to log. Until then lines are dropped.
pub fn open(log: Log) {
    // The first time reads the file of the time zone, which later there may be no right to.
    clock::local_time();
    OPEN.set(Some(Open {
        log,
        pid: std::process::id(),
        #[cfg(feature = "defmt")]
        encoding: Encoding::new(),
        waiting: Vec::new(),
    }));
    encoding::introduce();
}

/// Opens the log file anew, as it may have been moved away.
pub fn reopen() {
    flush();
    let reopened = with_open(|open| open.log.file.as_mut().map(LogFile::reopen));
    if let Some(Some(Err(refusal))) = reopened {
        error!("log file: {}; keeping the old one", DisplayArg(refusal));
    } else {
        encoding::introduce();
    }
}

/// Text for one line elsewhere than in the log, without the control characters that it may have from
/// outside.
pub fn printable(text: &str) -> String {
    let mut printable = String::new();
    for c in text.chars() {
        if c.is_control() { printable.extend(c.escape_default()) } else { printable.push(c) }
    }
    printable
}

/// Writes the lines that wait.
pub fn flush() {
    with_open(Open::flush);
}

/// None before the log is open, and for a line from within a line.
fn with_open<T>(use_it: impl FnOnce(&mut Open) -> T) -> Option<T> {
    OPEN.with(|open| open.try_borrow_mut().ok()?.as_mut().map(use_it))
}

impl Open {
    fn wait(&mut self, line: &[u8]) {
        if self.waiting.extend_from_slice(line).is_err() {
            self.flush();
            // Longer than the whole buffer no line is.
            let _ = self.waiting.extend_from_slice(line);
        }
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(file) = &self.log.file {
            file.write(&self.waiting);
        }
        if self.log.stderr {
            write_stderr(&self.waiting);
        }
        self.waiting.clear();
    }
}
