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
    #[cfg(not(feature = "defmt"))]
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
