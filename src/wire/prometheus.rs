//! Metrics in the text format of Prometheus (`docs/instrumenting/exposition_formats.md` in its repository
//! `docs`).

use core::fmt::{self, Write};

use heapless::Vec;

/// Size of the pieces in which a text is written, in bytes.
const PIECE: usize = 1024;

/// The value of a label as it stands between quotes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// Escapes what it is given.
struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '\\' | '"' => self.0.write_char('\\').and_then(|()| self.0.write_char(c)),
            '\n' => self.0.write_str("\\n"),
            _ => self.0.write_char(c),
        })
    }
}

/// Writes a text in pieces: `template` with `labels` for each `@`, and the next of the values for each `$`.
///
/// # Errors
/// That of `write`, after which nothing more is written.
pub fn render<E>(
    template: &str,
    labels: &str,
    values: &[u64],
    write: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut values = values.iter();
    let mut pieces = Pieces { piece: Vec::new(), write };
    for byte in template.bytes() {
        match byte {
            b'@' => pieces.push(labels.as_bytes())?,
            b'$' => pieces.push_number(values.next().copied().unwrap_or_default())?,
            _ => pieces.push(&[byte])?,
        }
    }
    pieces.flush()
}

struct Pieces<'a, E> {
    piece: Vec<u8, PIECE>,
    write: &'a mut dyn FnMut(&[u8]) -> Result<(), E>,
}

impl<E> Pieces<'_, E> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), E> {
        for byte in bytes {
            if self.piece.is_full() {
                self.flush()?;
            }
            // Now there is room.
            let _ = self.piece.push(*byte);
        }
        Ok(())
    }

    fn push_number(&mut self, number: u64) -> Result<(), E> {
        // The longest number has 20 digits. The last comes first.
        let mut digits = Vec::<u8, 20>::new();
        let mut rest = number;
        while rest > 0 || digits.is_empty() {
            // Less than 10.
            let digit = u8::try_from(rest % 10).unwrap_or_default();
            let _ = digits.push(b'0' + digit);
            rest /= 10;
        }
        digits.iter().rev().try_for_each(|digit| self.push(&[*digit]))
    }

    fn flush(&mut self) -> Result<(), E> {
        (self.write)(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, and the lengths of its pieces.
    fn rendered(template: &str, labels: &str, values: &[u64]) -> (String, std::vec::Vec<usize>) {
        let (mut text, mut lengths) = (std::vec::Vec::new(), std::vec::Vec::new());
        let written: Result<(), ()> = render(template, labels, values, &mut |piece| {
            text.extend_from_slice(piece);
            lengths.push(piece.len());
            Ok(())
        });
        written.unwrap();
        (String::from_utf8(text).unwrap(), lengths)
    }

    #[test]
    fn labels_and_values_get_their_places() {
        let (text, lengths) = rendered("a{@} $\nb{@,c=\"d\"} $\n$", "x=\"é\"", &[0, u64::MAX, 107]);
        assert_eq!(text, "a{x=\"é\"} 0\nb{x=\"é\",c=\"d\"} 18446744073709551615\n107");
        assert_eq!(lengths, [text.len()]);
    }

    #[test]
    fn long_text_comes_in_pieces() {
        let (text, lengths) = rendered(&"@".repeat(300), "0123456", &[]);
        assert_eq!(text, "0123456".repeat(300));
        assert_eq!(lengths, [1024, 1024, 52]);
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let mut pieces = 0;
        let written = render(&"x".repeat(5000), "", &[], &mut |_| {
            pieces += 1;
            if pieces == 2 { Err("full") } else { Ok(()) }
        });
        assert_eq!((written, pieces), (Err("full"), 2));
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let cases = [("r1", "r1"), (r#"a"b\c"#, r#"a\"b\\c"#), ("é\nx", "é\\nx"), ("\\n", r"\\n")];
        for (value, expected) in cases {
            assert_eq!(Escaped(value).to_string(), expected);
        }
    }
}
