//! Lines of text.

use core::fmt::{self, Write};

use super::{Level, Line, Logger, MAX_LINE, with_logger};
use crate::sys::clock::{self, LocalTime};
use crate::sys::stderr::write_stderr;

macro_rules! error { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Error, format_args!($($line)+)) } }
macro_rules! warning { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Warning, format_args!($($line)+)) } }
macro_rules! info { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Info, format_args!($($line)+)) } }
macro_rules! debug { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Debug, format_args!($($line)+)) } }
pub(crate) use {debug, error, info, warning};

/// Does nothing, as each line has pid and router.
pub(super) fn write_banner() {}

/// Adds a line. Use the macros.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    with_logger(|logger| logger.line(level, text));
}

impl Logger {
    fn line(&mut self, level: Level, text: fmt::Arguments<'_>) {
        if level > self.log.level {
            return;
        }
        let now = clock::local_time();
        let severity = level as u8;
        let name = match level {
            Level::Error => "ERROR",
            Level::Warning => "WARNING",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
        };
        let (pid, router) = (self.pid, &self.log.router);
        let mut line = Line::<MAX_LINE>::default();
        // A failed write means that a long line was cut.
        if let Some(syslog) = &mut self.log.syslog {
            let _ = write!(line, "{}{router}: {text}", syslog_head(level, now, pid));
            syslog.send(line.as_str().as_bytes());
            line = Line::default();
        }
        if self.log.journal && self.log.stderr {
            let _ = write!(line, "<{severity}>{router}: {text}");
            if self.log.file.is_none() {
                return self.enqueue(line.end().as_bytes());
            }
            self.stderr.write(line.end().as_bytes(), write_stderr);
            line = Line::default();
        }
        if self.log.file.is_some() || self.log.stderr {
            // The default format of oslo.log outside a request.
            let _ = write!(line, "{now} {pid} {name} keepwatch [-] {router}: {text}");
            self.enqueue(line.end().as_bytes());
        }
    }
}

/// Returns the beginning of a line as `syslog(3)` writes it. With another 16th byte than the blank behind the time,
/// `OpenWrt`'s logd would not find the time, and without a time it could cut off the name.
fn syslog_head(level: Level, now: LocalTime, pid: u32) -> impl fmt::Display {
    const DAEMON: u8 = 3;
    let priority = DAEMON * 8 + level as u8;
    fmt::from_fn(move |f| write!(f, "<{priority}>{} keepwatch[{pid}]: ", now.for_syslog()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strips a priority and a time as `OpenWrt`'s logd does (`log_add` in ubox's log/syslog.c).
    fn logged_by_logd(line: &str) -> &str {
        let line = line.split_once('>').map_or(line, |(_, rest)| rest);
        if line.as_bytes().get(15) == Some(&b' ') { &line[16..] } else { line }
    }

    #[test]
    fn logd_cuts_off_only_the_time() {
        for pid in [1, 22, 959, 4_321, 32_768, 999_999, 4_194_304] {
            let head = syslog_head(Level::Info, clock::local_time(), pid).to_string();
            assert!(head.starts_with("<30>"), "{head}");
            assert_eq!(logged_by_logd(&head), format!("keepwatch[{pid}]: "), "{head}");
        }
    }
}
