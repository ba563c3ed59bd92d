//! Lines of text.

use core::fmt::{self, Write};

use super::line::Line;
use super::{Level, Logger, MAX_LINE, with_logger};
use crate::sys::clock::{self, LocalTime};

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
        let now = clock::local_time();
        let (pid, router) = (self.pid, &self.log.router);
        let mut line = Line::<MAX_LINE>::default();
        // A line that is too long is cut.
        if self.log.journal {
            let _ = write!(line, "<{}>{router}: {text}", severity(level));
            self.enqueue(line.end().as_bytes());
        } else if self.log.file.is_some() || self.log.stderr {
            // As oslo.log writes it by default, where no request belongs to it.
            let _ = write!(line, "{now} {pid} {} keepwatch [-] {router}: {text}", name(level));
            self.enqueue(line.end().as_bytes());
        }
        if self.log.syslog.is_some() {
            self.send_to_syslog(level, &now, text);
        }
    }

    fn send_to_syslog(&self, level: Level, now: &LocalTime, text: fmt::Arguments<'_>) {
        const DAEMON: u8 = 3;
        let priority = DAEMON * 8 + severity(level);
        let (time, pid, router) = (now.syslog(), self.pid, &self.log.router);
        let mut line = Line::<MAX_LINE>::default();
        let _ = write!(line, "<{priority}>{time} keepwatch[{pid}]: {router}: {text}");
        if let Some(syslog) = &self.log.syslog {
            syslog.send(line.as_str().as_bytes());
        }
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warning => "WARNING",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
    }
}

/// The severity of RFC 3164 section 4.1.1, which is that of `sd-daemon(3)` too.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
        Level::Debug => 7,
    }
}
