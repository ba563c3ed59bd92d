//! Reports of the helper processes that run programs.

use std::ffi::OsStr;
use std::iter;
use std::os::unix::ffi::OsStrExt;

use super::event_loop::Daemon;
use crate::helper::{Helper, is_temporary};
use crate::log::{info, shown_len, warning};
use crate::monitor::{HelperKind, HelperNews, Input};
use crate::sys::clock;
use crate::wire::helper::{MAX_LINES, MAX_OUTPUT, MAX_PIECE, RunReport};

impl Daemon<'_> {
    /// Handles the reports of runs, and the end of a helper. Returns whether nothing is left to read.
    pub(super) fn handle_helper(&mut self, kind: HelperKind, buffer: &mut [u8]) -> bool {
        loop {
            let received = match kind {
                HelperKind::Conntrackd => self.conntrackd.as_mut().and_then(|h| h.receive(buffer)),
                HelperKind::Hook => self.hook.as_mut().and_then(|h| h.receive(buffer)),
            };
            match received {
                None => return true,
                Some(Ok(report)) => {
                    let is_logged = self.monitor.logs_output(kind, report.end, clock::now());
                    // The line about a failure comes first, as the log may not have room for all.
                    self.dispatch(&Input::Helper(kind, HelperNews::Ended(report.end)));
                    if is_logged {
                        log_run(kind.name(), &report);
                    }
                }
                Some(Err(errno)) if is_temporary(errno) => return false,
                Some(Err(_)) => {
                    match kind {
                        HelperKind::Conntrackd => self.conntrackd = None,
                        HelperKind::Hook => self.hook = None,
                    }
                    self.dispatch(&Input::Helper(kind, HelperNews::Gone));
                }
            }
        }
    }

    /// Logs the runs that the daemon's exit kills.
    pub(super) fn log_kills(&self) {
        log_kill(self.conntrackd.as_ref(), HelperKind::Conntrackd);
        log_kill(self.hook.as_ref(), HelperKind::Hook);
    }
}

fn log_kill<Request>(helper: Option<&Helper<Request>>, kind: HelperKind) {
    if helper.is_some_and(|helper| helper.is_busy) {
        warning!("{} still running; killed", kind.name());
    }
}

/// Cuts a line of output into pieces that fit a line of the log, also with their control characters escaped.
fn pieces(mut line: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let (piece, rest) = line.split_at(first_piece(line));
        line = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Returns the length of the first piece: of the text of [`MAX_PIECE`] bytes, or a bit less.
fn first_piece(line: &[u8]) -> usize {
    let (mut length, mut shown) = (0, 0);
    for chunk in line.utf8_chunks() {
        let invalid = (chunk.invalid().len(), char::REPLACEMENT_CHARACTER.len_utf8());
        let valid = chunk.valid().chars().map(|c| (c.len_utf8(), shown_len(c)));
        for (bytes, more) in valid.chain([invalid]) {
            shown += more;
            if shown > MAX_PIECE {
                return length;
            }
            length += bytes;
        }
    }
    length
}

fn log_run(name: &str, report: &RunReport<'_>) {
    let mut pieces = report.output.split(|byte| *byte == b'\n').flat_map(pieces);
    for line in pieces.by_ref().take(MAX_LINES) {
        info!("{}: {}", name, OsStr::from_bytes(line).display());
    }
    if pieces.next().is_some() || report.output.len() == MAX_OUTPUT {
        warning!("{}: more output discarded", name);
    }
    if report.killed > 0 {
        warning!("{}: processes of the failed run killed: {}", name, report.killed);
    }
}
