//! What programs print, within a budget.

use crate::wire::helper::MAX_LINE;

/// The most lines that are passed on of a run, each of up to [`MAX_LINE`] bytes.
const LINES: u32 = 64;

/// Output in lines: passed on within a budget, discarded beyond it.
#[derive(Debug, Default)]
pub struct Output {
    line: Vec<u8>,
    lines: u32,
    discarded: u32,
}

impl Output {
    /// Gives the run that begins now a budget of its own.
    pub fn begin_run(&mut self) {
        self.lines = 0;
    }

    /// Handles what was printed next. Passes on the lines that it completes, a long one in pieces.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte == b'\n' || self.line.len() == MAX_LINE {
                self.end_line(&mut each);
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }

    /// Handles the end of a run: passes on the last line if it has no end. Returns how many bytes were discarded
    /// since the last call.
    pub fn end_run(&mut self, mut each: impl FnMut(&[u8])) -> u32 {
        self.end_line(&mut each);
        std::mem::take(&mut self.discarded)
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        let length = self.line.len();
        if length == 0 {
            return;
        }
        if self.lines < LINES {
            self.lines += 1;
            each(&self.line);
        } else {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            self.discarded = self.discarded.saturating_add(length);
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes a text in pieces of this size. Returns what is passed on, with a `|` after each line, and how much
    /// is discarded.
    fn take(output: &mut Output, text: &[u8], piece: usize) -> (String, u32) {
        let mut taken = String::new();
        let mut each = |line: &[u8]| {
            assert!(!line.is_empty());
            taken += std::str::from_utf8(line).unwrap();
            taken += "|";
        };
        output.begin_run();
        text.chunks(piece).for_each(|bytes| output.push(bytes, &mut each));
        let discarded = output.end_run(&mut each);
        (taken, discarded)
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        for piece in 1..12 {
            let taken = take(&mut Output::default(), b"one\n\ntwo\nno end", piece);
            assert_eq!(taken, ("one|two|no end|".into(), 0));
        }
    }

    #[test]
    fn long_line_comes_in_pieces() {
        let (taken, discarded) = take(&mut Output::default(), &[b'a'; 500], 100);
        assert_eq!(taken.split('|').map(str::len).collect::<Vec<_>>(), [240, 240, 20, 0]);
        assert_eq!(discarded, 0);
    }

    #[test]
    fn what_is_beyond_the_budget_is_counted() {
        let mut output = Output::default();
        let (taken, discarded) = take(&mut output, &b"y\n".repeat(100), 7);
        assert_eq!((taken.len(), discarded), (2 * 64, 36));
        let (taken, discarded) = take(&mut output, &b"a".repeat(20_000), 1000);
        assert_eq!((taken.matches('a').count(), discarded), (64 * 240, 20_000 - 64 * 240));
    }

    #[test]
    fn what_is_discarded_between_runs_is_told_with_the_next() {
        let mut output = Output::default();
        take(&mut output, &b"y\n".repeat(64), 64);
        output.push(b"in the background\n", |_| panic!("over the budget"));
        assert_eq!(take(&mut output, b"next\n", 64), ("next|".into(), 17));
    }
}
