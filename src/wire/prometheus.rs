//! Metrics in the text format of Prometheus (`docs/instrumenting/exposition_formats.md` in its repository
//! `docs`).

use core::fmt::Write;

use heapless::Vec;

/// Size of the pieces in which a text is written, in bytes.
const PIECE: usize = 1024;

/// Passes a character of a label's value on as it stands between quotes.
pub fn escape(c: char, mut push: impl FnMut(char)) {
    if let '\\' | '"' | '\n' = c {
        push('\\');
    }
    push(if c == '\n' { 'n' } else { c });
}

/// Writes a text in pieces: for each line of `families` a metric, whose name is to begin with `keepwatch_`, with
/// the next of the values for each of its samples.
///
/// A line has name, help, and for each sample its own labels, if any, with tabs between them. A name that ends
/// with `_total` is a counter's, any other a gauge's.
///
/// # Errors
/// That of `write`, after which nothing more is written.
pub fn render<E>(
    families: &str,
    labels: &str,
    values: &[u64],
    write: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut values = values.iter();
    let mut pieces = Pieces { piece: Vec::new(), write };
    for family in families.as_bytes().split(|byte| *byte == b'\n') {
        let mut fields = family.split(|byte| *byte == b'\t');
        let (Some(name), Some(help)) = (fields.next(), fields.next()) else { break };
        let kind: &[u8] = if name.ends_with(b"_total") { b"counter" } else { b"gauge" };
        pieces.push(&[b"# HELP keepwatch_", name, b" ", help, b"\n# TYPE keepwatch_", name])?;
        pieces.push(&[b" ", kind, b"\n"])?;
        for own in fields {
            let comma: &[u8] = if own.is_empty() { b"" } else { b"," };
            pieces.push(&[b"keepwatch_", name, b"{", labels.as_bytes(), comma, own, b"} "])?;
            pieces.push_number(values.next().copied().unwrap_or_default())?;
        }
    }
    pieces.flush()
}

struct Pieces<'a, E> {
    piece: Vec<u8, PIECE>,
    write: &'a mut dyn FnMut(&[u8]) -> Result<(), E>,
}

impl<E> Pieces<'_, E> {
    fn push(&mut self, texts: &[&[u8]]) -> Result<(), E> {
        for byte in texts.iter().copied().flatten() {
            if self.piece.is_full() {
                self.flush()?;
            }
            // Now there is room.
            let _ = self.piece.push(*byte);
        }
        Ok(())
    }

    /// Pushes a number and the end of its line.
    fn push_number(&mut self, number: u64) -> Result<(), E> {
        // The longest number has 20 digits.
        let mut line = heapless::String::<21>::new();
        let _ = writeln!(line, "{number}");
        self.push(&[line.as_bytes()])
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
    fn rendered(families: &str, labels: &str, values: &[u64]) -> (String, std::vec::Vec<usize>) {
        let (mut text, mut lengths) = (std::vec::Vec::new(), std::vec::Vec::new());
        let written: Result<(), ()> = render(families, labels, values, &mut |piece| {
            text.extend_from_slice(piece);
            lengths.push(piece.len());
            Ok(())
        });
        written.unwrap();
        (String::from_utf8(text).unwrap(), lengths)
    }

    #[test]
    fn samples_have_labels_and_values() {
        let families = "a\tSome help.\t\nb_total\tMore.\tc=\"d\"\tc=\"e\"\n";
        let (text, lengths) = rendered(families, "x=\"é\"", &[0, u64::MAX, 107]);
        let expected = "# HELP keepwatch_a Some help.\n\
                        # TYPE keepwatch_a gauge\n\
                        keepwatch_a{x=\"é\"} 0\n\
                        # HELP keepwatch_b_total More.\n\
                        # TYPE keepwatch_b_total counter\n\
                        keepwatch_b_total{x=\"é\",c=\"d\"} 18446744073709551615\n\
                        keepwatch_b_total{x=\"é\",c=\"e\"} 107\n";
        assert_eq!(text, expected);
        assert_eq!(lengths, [text.len()]);
    }

    #[test]
    fn long_text_comes_in_pieces() {
        let (text, lengths) = rendered("a\th\t\n", &"0123456".repeat(300), &[1]);
        assert_eq!(text.matches("0123456").count(), 300);
        assert_eq!(lengths, [1024, 1024, text.len() - 2048]);
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let mut pieces = 0;
        let written = render("a\th\t\n", &"x".repeat(5000), &[1], &mut |_| {
            pieces += 1;
            if pieces == 2 { Err("full") } else { Ok(()) }
        });
        assert_eq!((written, pieces), (Err("full"), 2));
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let cases = [("r1", "r1"), (r#"a"b\c"#, r#"a\"b\\c"#), ("é\nx", "é\\nx"), ("\\n", r"\\n")];
        for (value, expected) in cases {
            let mut escaped = String::new();
            value.chars().for_each(|c| escape(c, |c| escaped.push(c)));
            assert_eq!(escaped, expected);
        }
    }
}
