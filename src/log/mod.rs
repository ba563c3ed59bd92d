//! The log: every line goes through the macros here.
//!
//! A line is formatted into a buffer and written with its neighbours before the loop goes to sleep,
//! so that a transition costs one write. Nothing allocates, nothing waits, and control characters
//! from outside are escaped.

mod notes;

pub use notes::Labels;

use core::cell::RefCell;
use core::fmt::{self, Write};

use heapless::String;

use crate::sys::clock::{self, LocalTime};
use crate::sys::log_file::{LogFile, Syslog, write_stderr};
use crate::wire::http::RouterId;

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

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
        }
    }

    /// The severity of RFC 3164 section 4.1.1.
    fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

macro_rules! error { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Error, format_args!($($line)+)) } }
macro_rules! warning { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Warning, format_args!($($line)+)) } }
macro_rules! info { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Info, format_args!($($line)+)) } }
macro_rules! debug { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Debug, format_args!($($line)+)) } }
pub(crate) use {debug, error, info, warning};

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
    waiting: String<MAX_WAITING>,
}

thread_local! {
    /// The one thread's log.
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Begins to log. Until then lines are dropped.
pub fn open(log: Log) {
    // The first time reads the file of the time zone, which later there may be no right to.
    clock::local_time();
    let open = Open { log, pid: std::process::id(), waiting: String::new() };
    OPEN.set(Some(open));
}

/// Opens the log file anew, as it may have been moved away.
pub fn reopen() {
    flush();
    let reopened = with_open(|open| open.log.file.as_mut().map(LogFile::reopen));
    if let Some(Some(Err(errno))) = reopened {
        error!("log file: {errno}; the old one is kept");
    }
}

/// Writes the lines that wait.
pub fn flush() {
    with_open(Open::flush);
}

/// Writes a line at once; to standard error alone, if it is the log itself that has failed.
pub fn last_words(text: fmt::Arguments<'_>) {
    let written = with_open(|open| {
        open.line(Level::Error, text);
        open.flush();
    });
    if written.is_none() {
        let mut line = Line::default();
        let _ = write!(line, "{text}");
        write_stderr(line.end().as_bytes());
    }
}

/// Adds a line. Use the macros.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    with_open(|open| {
        if level <= open.log.level {
            open.line(level, text);
        }
    });
}

/// None before the log is open, and for a line from within a line.
fn with_open<T>(use_it: impl FnOnce(&mut Open) -> T) -> Option<T> {
    OPEN.with(|open| open.try_borrow_mut().ok()?.as_mut().map(use_it))
}

impl Open {
    fn line(&mut self, level: Level, text: fmt::Arguments<'_>) {
        let now = clock::local_time();
        if self.log.file.is_some() || self.log.stderr {
            let mut line = Line::default();
            // A line that is too long is cut, and that is all there is to do about it.
            let _ = write!(line, "{now} {} {} {}: {text}", self.pid, level.name(), self.log.router);
            self.wait(line.end());
        }
        if self.log.syslog.is_some() {
            self.send_to_syslog(level, &now, text);
        }
    }

    fn wait(&mut self, line: &str) {
        if self.waiting.push_str(line).is_err() {
            self.flush();
            // Longer than the whole buffer no line is.
            let _ = self.waiting.push_str(line);
        }
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(file) = &self.log.file {
            file.write(self.waiting.as_bytes());
        }
        if self.log.stderr {
            write_stderr(self.waiting.as_bytes());
        }
        self.waiting.clear();
    }

    fn send_to_syslog(&self, level: Level, now: &LocalTime, text: fmt::Arguments<'_>) {
        const DAEMON: u8 = 3;
        let priority = DAEMON * 8 + level.severity();
        let (time, pid, router) = (now.syslog(), self.pid, &self.log.router);
        let mut line = Line::default();
        let _ = write!(line, "<{priority}>{time} keepwatch[{pid}]: {router}: {text}");
        if let Some(syslog) = &self.log.syslog {
            syslog.send(line.0.as_bytes());
        }
    }
}

/// A line of bounded length without control characters.
#[derive(Default)]
struct Line(String<MAX_LINE>);

impl Line {
    /// The line with its LF, for which there is always room.
    fn end(&mut self) -> &str {
        let _ = self.0.push('\n');
        &self.0
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if c.is_control() {
                write!(self, "{}", c.escape_default())?;
            } else if self.0.len() + c.len_utf8() < MAX_LINE {
                self.0.push(c).map_err(|_| fmt::Error)?;
            } else {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let mut line = Line::default();
        write!(line, "a\nb\x1b[31m\u{85}c\u{0}é").unwrap();
        assert_eq!(line.end(), "a\\nb\\u{1b}[31m\\u{85}c\\u{0}é\n");
    }

    #[test]
    fn long_line_is_cut_and_still_ends() {
        let mut line = Line::default();
        assert!(write!(line, "{}", "é".repeat(MAX_LINE)).is_err());
        assert!(line.end().ends_with("é\n"));
        assert!(line.0.len() <= MAX_LINE);
    }
}
