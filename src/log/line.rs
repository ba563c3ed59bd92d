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
        for (text, cut) in
            [("1234567", "1234567\n"), ("12345678", "1234567\n"), ("123456é", "123456\n")]
        {
            let mut line = Line::<8>::default();
            assert_eq!(line.write_str(text).is_ok(), text.len() < 8);
            assert_eq!(line.end(), cut);
        }
    }
}
