//! Lines of text.

use core::fmt::{self, Write};

use super::line::Line;
use super::{Level, Logger, MAX_LINE, with_logger};
use crate::sys::clock;

macro_rules! error { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Error, format_args!($($line)+)) } }
macro_rules! warning { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Warning, format_args!($($line)+)) } }
macro_rules! info { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Info, format_args!($($line)+)) } }
macro_rules! debug { ($($line:tt)+) => { $crate::log::line($crate::log::Level::Debug, format_args!($($line)+)) } }
pub(crate) use {debug, error, info, warning};

/// Does nothing: each line has pid and router.
pub(super) fn write_banner() {}

/// Adds a line. Use the macros.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    with_logger(|logger| {
        if level <= logger.log.level {
            logger.line(level, text);
        }
    });
}

impl Logger {
    fn line(&mut self, level: Level, text: fmt::Arguments<'_>) {
        const DAEMON: u8 = 3;
        let now = clock::local_time();
        let (severity, name) = severity(level);
        let (pid, router) = (self.pid, &self.log.router);
        let mut line = Line::<MAX_LINE>::default();
        // A line that is too long is cut.
        if let Some(syslog) = &self.log.syslog {
            let priority = DAEMON * 8 + severity;
            let _ = write!(line, "<{priority}>{now:#} keepwatch[{pid}]: {router}: {text}");
            syslog.send(line.as_str().as_bytes());
            line = Line::default();
        }
        if self.log.journal {
            let _ = write!(line, "<{severity}>{router}: {text}");
        } else if self.log.file.is_some() || self.log.stderr {
            // As oslo.log writes it by default, where no request belongs to it.
            let _ = write!(line, "{now} {pid} {name} keepwatch [-] {router}: {text}");
        } else {
            return;
        }
        self.enqueue(line.end().as_bytes());
    }
}

/// The severity of RFC 3164 section 4.1.1, which is that of `sd-daemon(3)` too, and its name in `oslo.log`.
fn severity(level: Level) -> (u8, &'static str) {
    match level {
        Level::Error => (3, "ERROR"),
        Level::Warning => (4, "WARNING"),
        Level::Info => (6, "INFO"),
        Level::Debug => (7, "DEBUG"),
    }
}
