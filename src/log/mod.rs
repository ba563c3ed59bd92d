//! The log: every line goes through the macros here.
//!
//! Lines are buffered and written together before the loop goes to sleep, so that a transition costs one write. Logging
//! allocates nothing, and waits only for a disk; an exit also waits for the log daemon. Control characters from outside
//! are escaped.
//!
//! Lines are text or, with feature `defmt`, frames. Log statements use their common syntax: `{}`, and arguments
//! behind the text.

#[cfg(feature = "defmt")]
mod compact;
mod describe;
mod messages;
#[cfg(not(feature = "defmt"))]
mod text;

#[cfg(feature = "defmt")]
use compact as encoding;
#[cfg(not(feature = "defmt"))]
use text as encoding;

#[cfg(feature = "defmt")]
pub(crate) use compact::DisplayArg;
pub(crate) use describe::{Denial, of_user};
pub(crate) use encoding::{debug, error, info, line, warning};
pub(crate) use messages::Names;

use core::cell::RefCell;
use core::fmt::{self, Write};
use std::os::fd::RawFd;

use heapless::Vec;

use crate::monitor::Duration;
use crate::sys::clock;
use crate::sys::log_sink::{Gaps, LogFile, Syslog};
use crate::sys::stderr::write_stderr;
use crate::wire::http::RouterId;
#[cfg(feature = "defmt")]
use encoding::Frame;

/// The longest line in bytes; a longer one is cut.
const MAX_LINE: usize = 512;
/// How long an exit waits for the log daemon.
const LAST_WAIT: Duration = Duration::from_millis(200);
/// Size of the buffer for lines, in bytes.
const BUFFER_SIZE: usize = 2048;

/// The severity of a line, with its number in RFC 3164 (section 4.1.1) and `sd-daemon(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost: a change, a synchronisation, an announcement, or the daemon itself.
    Error = 3,
    /// A failure that is retried, or that needs attention elsewhere.
    Warning = 4,
    /// A change, and its reports.
    Info = 6,
    /// Every event.
    Debug = 7,
}

/// The destinations of lines, and what all lines begin with.
#[derive(Debug)]
pub struct Log {
    /// The router, which every line names.
    pub router: RouterId,
    /// The least severe level that is logged.
    pub level: Level,
    /// The log file.
    pub file: Option<LogFile>,
    /// Whether lines go to standard error.
    pub stderr: bool,
    /// Whether lines also go to standard error while the file cannot be reopened.
    pub stderr_instead: bool,
    /// Whether standard error is the journal, which adds time and pid to each line.
    pub journal: bool,
    /// The system's log.
    pub syslog: Option<Syslog>,
}

struct Logger {
    log: Log,
    pid: u32,
    #[cfg(feature = "defmt")]
    frame: Frame,
    buffer: Vec<u8, BUFFER_SIZE>,
    stderr: Gaps,
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
        stderr: Gaps::default(),
    }));
    encoding::write_banner();
}

/// Returns whether the log file has been renamed or removed, unless root must not follow it.
pub fn was_renamed() -> bool {
    with_logger(|logger| logger.log.file.as_ref().is_some_and(LogFile::was_renamed)) == Some(true)
}

/// Reopens the log file, which may have been rotated. If that fails, the old one is kept, and a line says why. Returns
/// whether it succeeded.
pub fn reopen() -> bool {
    flush();
    let reopened = with_logger(|Logger { log, .. }| {
        let file = log.file.as_mut()?;
        let refusal = file.reopen().err().map(|refusal| of_user(refusal, file.user));
        log.stderr = log.stderr_instead && refusal.is_some();
        refusal
    });
    if let Some(Some(refusal)) = reopened {
        warning!("log file not reopened: {}; writing to the old one", refusal);
        return false;
    }
    encoding::write_banner();
    true
}

/// Escapes characters that a terminal does not show, such as control characters and those that change the direction of
/// writing, for text outside the log.
pub fn printable(text: &str) -> String {
    let escape = |c: char| if is_shown(c) { c.into() } else { c.escape_default().to_string() };
    text.chars().map(escape).collect()
}

/// Returns whether a terminal shows a character. `escape_debug` has the tables of Unicode, in which fillers of Hangul and
/// the blank of Braille are letters and symbols.
pub(crate) fn is_shown(c: char) -> bool {
    let is_blank = matches!(c, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}');
    !is_blank && (matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1)
}

/// Returns the number of bytes that a character takes in a line.
pub(crate) fn shown_len(c: char) -> usize {
    if is_shown(c) { c.len_utf8() } else { c.escape_default().len() }
}

/// Writes the lines that are buffered or kept. Returns the socket of the log daemon while that has no room.
pub fn flush() -> Option<RawFd> {
    let lost = with_logger(|logger| logger.log.syslog.as_mut()?.send_kept());
    if let Some(Some(lost)) = lost {
        warning!("lines lost because /dev/log was full or absent: {}", lost);
    }
    log_gaps("log file", |logger| logger.log.file.as_mut().map(|file| &mut file.gaps));
    log_gaps("standard error", |logger| Some(&mut logger.stderr));
    with_logger(|logger| {
        logger.flush();
        logger.log.syslog.as_ref()?.waiting()
    })?
}

/// Logs how much a destination has lost, once it has room.
fn log_gaps(name: &str, gaps: impl Fn(&mut Logger) -> Option<&mut Gaps>) {
    let lost = with_logger(|logger| {
        logger.flush();
        gaps(logger)?.lost()
    });
    if let Some(Some(lost)) = lost {
        warning!("{}: {} bytes could not be written and are lost", name, lost);
        with_logger(|logger| {
            logger.flush();
            if let Some(gaps) = gaps(logger) {
                gaps.handle_logged(lost);
            }
        });
    }
}

/// Writes all lines before an exit. A log daemon without room, as while a hook's output is logged, has a moment.
pub fn finish() {
    let end = clock::now() + LAST_WAIT;
    while flush().is_some() && clock::now() < end {
        let left = end - clock::now();
        with_logger(|logger| {
            logger.log.syslog.iter().for_each(|syslog| syslog.wait_for_room(left));
        });
    }
}

/// Calls `use_it` with the log. Returns `None` before [`open`], and if a line is logged while another one is written.
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
        // Beside a file, the journal has each line already, with its level, which the file's lines lack.
        let is_in_journal =
            cfg!(not(feature = "defmt")) && self.log.journal && self.log.file.is_some();
        if self.log.stderr && !is_in_journal {
            self.stderr.write(&self.buffer, write_stderr);
        }
        self.buffer.clear();
    }
}

/// A line of at most `MAX` bytes, with control characters escaped; a longer one is cut.
#[derive(Default)]
struct Line<const MAX: usize>(heapless::String<MAX>);

impl<const MAX: usize> Line<MAX> {
    fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the line with its LF, for which `write_str` reserves room.
    #[cfg(not(feature = "defmt"))]
    fn end(&mut self) -> &str {
        let _ = self.0.push('\n');
        &self.0
    }
}

impl<const MAX: usize> Write for Line<MAX> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Most text is copied at once: character by character, lines took half of a change's instructions.
        let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if is_plain && self.0.len() + text.len() < MAX {
            return self.0.push_str(text).map_err(|_| fmt::Error);
        }
        for c in text.chars() {
            if !is_shown(c) {
                write!(self, "{}", c.escape_default())?;
            } else if self.0.len() + c.len_utf8() < MAX {
                self.0.push(c).map_err(|_| fmt::Error)?;
            } else {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}
