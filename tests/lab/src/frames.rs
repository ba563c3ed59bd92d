//! The log of a keepwatch that was built with its feature `defmt`, decoded by the tables in the symbols of the program.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use defmt_decoder::{DecodeError, Frame, Table};

/// What a program calls the lines of its log by.
#[derive(Debug)]
pub struct Decoder(Table);

/// A line as a frame has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub time: String,
    pub level: &'static str,
    pub text: String,
}

impl Decoder {
    /// None for a program that logs text.
    pub fn of(program: &Path) -> Option<Self> {
        let program = fs::read(program).expect("the program");
        Table::parse(&program).expect("symbols of defmt").map(Self)
    }

    /// What is in a log, in order; none for a frame that cannot be decoded. A frame whose end is not
    /// there yet does not count.
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

    /// The log as text has it, where every line and not only the first says whose it is.
    pub fn text(&self, log: &[u8]) -> String {
        let mut text = String::new();
        let mut whose = None;
        for line in self.lines(log) {
            let line = line.unwrap_or_else(|| panic!("a damaged frame behind\n{text}"));
            if let Some(introduced) = introduction(&line.text) {
                whose = Some(introduced);
                continue;
            }
            let (pid, router) = whose.as_ref().expect("to be told whose log it is");
            let Line { time, level, text: words } = line;
            let _ = writeln!(text, "{time} {pid} {level} keepwatch [-] {router}: {words}");
        }
        text
    }
}

/// None if it is a part of a line, which a damaged frame can seem to be.
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

/// The pid and the router of the line that every log begins with.
fn introduction(text: &str) -> Option<(String, String)> {
    let (_, whose) = text.strip_prefix("keepwatch ")?.split_once(", pid ")?;
    let (pid, router) = whose.split_once(", router ")?;
    Some((pid.into(), router.into()))
}
