//! The output: a table, blocks or JSON.

use nix::sys::time::TimeSpec;

use super::{HEADINGS, Row};
use crate::log::{is_shown, printable};
use crate::start::process;
use crate::sys::clock;

/// The most characters of a cell. Any user may add a row with a longer one, and formatting panics for a width over 65,535.
const MAX_CELL: usize = 8192;

/// Returns a Unix time as local time, such as `2026-11-20 10:00:00`.
pub(super) fn show_second(seconds: &str) -> String {
    let time = TimeSpec::new(seconds.parse().unwrap_or_default(), 0);
    let mut text = clock::at(time).to_string();
    text.truncate(19);
    text
}

/// Returns a table, or a block for each row if the terminal is too narrow.
pub(super) fn as_text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No instance found.\n".into();
    }
    let cell = |(heading, value): (&str, &Option<String>)| match value {
        Some(time) if heading == "SINCE" => show_second(time),
        value => printable(value.as_deref().unwrap_or("-")).chars().take(MAX_CELL).collect(),
    };
    let cells = |(row, _): &Row| HEADINGS.split(',').zip(row).map(cell).collect();
    let rows: Vec<Vec<_>> = rows.iter().map(cells).collect();
    let headings: Vec<_> = HEADINGS.split(',').map(String::from).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&headings]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count() + 2).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    let is_narrow =
        process::columns().is_some_and(|columns| widths.iter().sum::<usize>() > columns + 2);
    let mut text = String::new();
    for row in [&headings].into_iter().filter(|_| !is_narrow).chain(&rows) {
        for ((cell, width), heading) in row.iter().zip(&widths).zip(&headings) {
            text.extend([if is_narrow {
                format!("{heading:<13}{cell}\n")
            } else {
                format!("{cell:<width$}")
            }]);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

pub(super) fn as_json(rows: &[Row]) -> String {
    let member = |(heading, value): (&str, &Option<String>)| {
        let value = match value {
            Some(number) if matches!(heading, "SINCE" | "PID") => number.clone(),
            Some(text) => format!("\"{}\"", escape(text)),
            None => "null".into(),
        };
        format!("\"{}\": {value}", heading.to_ascii_lowercase().replace(' ', "_"))
    };
    let members = |(row, _): &Row| HEADINGS.split(',').zip(row).map(member).collect::<Vec<_>>();
    let objects: Vec<_> =
        rows.iter().map(|row| format!("{{{}}}", members(row).join(", "))).collect();
    format!("[{}]\n", objects.join(",\n"))
}

/// Escapes text for a string of JSON (RFC 8259 section 7).
fn escape(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        _ if is_shown(c) => c.into(),
        _ => c
            .encode_utf16(&mut [0; 2])
            .iter()
            .fold(String::new(), |text, unit| text + &format!("\\u{unit:04x}")),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_CELL, as_text};
    use crate::list::Verdict;

    #[test]
    fn long_cell_is_cut() {
        let row = std::array::from_fn(|_| Some("\u{1}".repeat(20_000)));
        let lines: Vec<_> = as_text(&[(row, Verdict::Ok)]).lines().map(str::len).collect();
        assert!(lines.len() == 2 && lines[1] < 14 * MAX_CELL, "{lines:?}");
    }
}
