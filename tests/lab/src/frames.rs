//! The log of a keepwatch with the feature `defmt`, decoded by the symbols of the program.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use defmt_decoder::{DecodeError, Frame, Table};

use crate::daemon::DAMAGED_FRAME;

/// The table of a program's log lines.
#[derive(Debug)]
pub struct Decoder(Table);

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub time: String,
    pub level: &'static str,
    pub text: String,
}

impl Decoder {
    /// Reads a program's symbols. Returns none for a program that logs text.
    pub fn of(program: &Path) -> Option<Self> {
        let program = fs::read(program).expect("the program");
        Table::parse(&program).expect("symbols of defmt").map(Self)
    }

    /// Returns the lines of a log; none for a damaged frame. An incomplete frame at the end does not count.
    pub fn lines(&self, log: &[u8]) -> Vec<Option<Line>> {
        let mut decoder = self.0.new_stream_decoder();
        decoder.received(log);
        let mut lines = Vec::new();
        loop {
            match decoder.decode() {
                Ok(frame) => lines.push(line(&frame)),
                Err(DecodeError::Malformed) => lines.push(None),
                Err(DecodeError::UnexpectedEof) => return lines,
            }
        }
    }

    /// Returns the log as text. There each line, not only the first, has the pid and the router. A damaged frame is
    /// [`DAMAGED_FRAME`].
    pub fn text(&self, log: &[u8]) -> String {
        let mut text = String::new();
        let mut source = None;
        for line in self.lines(log) {
            let Some(line) = line else {
                text.push_str(DAMAGED_FRAME);
                continue;
            };
            if let Some(introduced) = introduction(&line.text) {
                source = Some(introduced);
                continue;
            }
            let (pid, router) = source.as_ref().expect("an introduction before other lines");
            let Line { time, level, text: words } = line;
            let _ = writeln!(text, "{time} {pid} {level} keepwatch [-] {router}: {words}");
        }
        text
    }
}

/// Decodes a line. Returns none for a part of a line, as which a damaged frame may be decoded.
fn line(frame: &Frame<'_>) -> Option<Line> {
    let level = match frame.level()?.as_str() {
        "error" => "ERROR",
        "warn" => "WARNING",
        "info" => "INFO",
        "debug" => "DEBUG",
        _ => return None,
    };
    let time = frame.display_timestamp()?.to_string();
    Some(Line { time, level, text: frame.display_message().to_string() })
}

/// Returns the pid and the router of the first line of a log.
fn introduction(text: &str) -> Option<(String, String)> {
    let (_, whose) = text.strip_prefix("keepwatch ")?.split_once(", pid ")?;
    let (pid, router) = whose.split_once(", router ")?;
    Some((pid.into(), router.into()))
}
