//! Text of bounded length without control characters.

use core::fmt::{self, Write};

use heapless::String;

/// A line of at most `MAX` bytes; a longer one is cut.
#[derive(Default)]
pub(super) struct Line<const MAX: usize>(String<MAX>);

impl<const MAX: usize> Line<MAX> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The line with its LF, for which there is always room.
    #[cfg(any(test, not(feature = "defmt")))]
    pub(super) fn end(&mut self) -> &str {
        let _ = self.0.push('\n');
        &self.0
    }
}

impl<const MAX: usize> Write for Line<MAX> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // As nearly all text is.
        let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if printable && self.0.len() + text.len() < MAX {
            return self.0.push_str(text).map_err(|_| fmt::Error);
        }
        for c in text.chars() {
            if c.is_control() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let mut line = Line::<512>::default();
        write!(line, "a\nb\x1b[31m\u{85}c\u{0}é").unwrap();
        assert_eq!(line.end(), "a\\nb\\u{1b}[31m\\u{85}c\\u{0}é\n");
    }

    #[test]
    fn long_line_is_cut_and_still_ends() {
        let mut line = Line::<512>::default();
        assert!(write!(line, "{}", "é".repeat(512)).is_err());
        assert!(line.end().ends_with("é\n"));
        assert!(line.as_str().len() <= 512);
    }

    #[test]
    fn no_byte_of_a_line_is_wasted() {
        for (text, is_whole) in
            [("a".repeat(7), true), ("a".repeat(8), false), ("a".repeat(9), false)]
        {
            for pieces in [text.as_bytes().chunks(1), text.as_bytes().chunks(9)] {
                let mut line = Line::<8>::default();
                let mut write = |piece| line.write_str(str::from_utf8(piece).unwrap());
                assert_eq!(pieces.map(&mut write).all(|written| written.is_ok()), is_whole);
                assert_eq!(line.end(), "aaaaaaa\n");
            }
        }
    }
}
