//! What a program prints, within a budget.

use heapless::Vec;

use crate::wire::helper::MAX_LINE;

/// The most lines that are passed on of a program.
const LINES: u32 = 64;
/// The most bytes that are passed on of a program. A line that goes beyond is dropped as a whole.
const BYTES: usize = 8192;
/// After so many dropped bytes the rest need not be read.
const MAX_DROPPED: u32 = 1 << 20;

/// The output of one program: passed on line by line within a budget, dropped beyond it.
#[derive(Debug, Default)]
pub struct Output {
    line: Vec<u8, MAX_LINE>,
    lines: u32,
    bytes: usize,
    dropped: u32,
}

impl Output {
    /// Handles what was printed next. Passes on the lines that it completes, a long one in pieces.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line(&mut each);
            } else if self.line.push(*byte).is_err() {
                self.end_line(&mut each);
                // Now there is room.
                let _ = self.line.push(*byte);
            }
        }
    }

    /// Handles the end of the output. Passes on the last line if it has no end. Returns how many bytes were
    /// dropped.
    pub fn end(&mut self, mut each: impl FnMut(&[u8])) -> u32 {
        self.end_line(&mut each);
        self.dropped
    }

    /// Whether so much was dropped that the rest need not be read.
    pub fn is_boundless(&self) -> bool {
        self.dropped >= MAX_DROPPED
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        let length = self.line.len();
        if length == 0 {
            return;
        }
        if self.dropped == 0 && self.lines < LINES && self.bytes + length <= BYTES {
            self.lines += 1;
            self.bytes += length;
            each(&self.line);
        } else {
            self.dropped = self.dropped.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is handed over of all that is pushed in pieces of this size, with a line's end at each end, and
    /// what is thrown away.
    fn take(text: &[u8], piece: usize) -> (String, u32) {
        let (mut output, mut taken) = (Output::default(), String::new());
        let mut each = |line: &[u8]| {
            assert!(!line.is_empty());
            taken += std::str::from_utf8(line).unwrap();
            taken += "|";
        };
        text.chunks(piece).for_each(|bytes| output.push(bytes, &mut each));
        let dropped = output.end(&mut each);
        (taken, dropped)
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        for piece in 1..12 {
            assert_eq!(take(b"one\n\ntwo\nno end", piece), ("one|two|no end|".into(), 0));
        }
    }

    #[test]
    fn long_line_comes_in_pieces() {
        let (taken, dropped) = take(&[b'a'; 500], 100);
        assert_eq!(taken.split('|').map(str::len).collect::<std::vec::Vec<_>>(), [240, 240, 20, 0]);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn what_is_beyond_the_budget_is_counted() {
        let (taken, dropped) = take(&b"y\n".repeat(100), 7);
        assert_eq!((taken.len(), dropped), (2 * 64, 36));
        let (taken, dropped) = take(&[b'a'; 10_000], 1000);
        assert_eq!((taken.matches('a').count(), dropped), (34 * 240, 10_000 - 34 * 240));
        // Nothing is taken again once something is missing.
        let text = [&[b'a'; 8190][..], b"\nabc\nd\n"].concat();
        let (taken, dropped) = take(&text, 64);
        assert!(taken.ends_with("a|") && dropped == 4, "{dropped}");
    }

    #[test]
    fn boundless_output_need_not_be_read() {
        let mut output = Output::default();
        let mut read = 0;
        while !output.is_boundless() {
            output.push(&b"yes\n".repeat(1000), |_| {});
            read += 4000;
        }
        assert!((1 << 20..2 << 20).contains(&read), "{read}");
    }
}
