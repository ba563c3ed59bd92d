//! Lines of text.

use core::fmt::{self, Write};

use super::{Level, Line, Logger, MAX_LINE, with_logger};
use crate::sys::clock;

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
        const DAEMON: u8 = 3;
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
        if let Some(syslog) = &self.log.syslog {
            let priority = DAEMON * 8 + severity;
            // Without a time: the log daemon has one (RFC 3164 section 4.3.2).
            let _ = write!(line, "<{priority}>keepwatch[{pid}]: {router}: {text}");
            syslog.send(line.as_str().as_bytes());
            line = Line::default();
        }
        if self.log.journal {
            let _ = write!(line, "<{severity}>{router}: {text}");
        } else if self.log.file.is_some() || self.log.stderr {
            // The default format of oslo.log outside a request.
            let _ = write!(line, "{now} {pid} {name} keepwatch [-] {router}: {text}");
        } else {
            return;
        }
        self.enqueue(line.end().as_bytes());
    }
}
