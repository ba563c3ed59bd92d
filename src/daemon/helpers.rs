//! What comes from the processes that run programs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::event_loop::Daemon;
use crate::log::{DisplayArg, info, warning};
use crate::monitor::{HelperKind, HelperNews, Input, Request};
use crate::sys::helper::{Helper, HelperEvent};

/// Lines that a program has printed, and ends of programs, taken in one turn, so that they starve nobody.
const ANSWERS_PER_TURN: usize = 16;

impl Daemon<'_> {
    fn helper(&mut self, kind: HelperKind) -> &mut Option<Helper> {
        match kind {
            HelperKind::Conntrackd => &mut self.conntrackd,
            HelperKind::Hook => &mut self.hook,
        }
    }

    /// Asks for a run. Returns what comes of it at once.
    pub(super) fn request(&mut self, request: Request) -> Option<Input> {
        let kind = request.helper();
        let requested = self.helper(kind).as_mut()?.run(request);
        requested.err().map(|_| Input::Helper(kind, HelperNews::Gone))
    }

    fn logs_output(&self, kind: HelperKind) -> bool {
        kind == HelperKind::Conntrackd || self.monitor.logs_hook_output()
    }

    /// Takes what has come from a helper, but only so much in one turn. Returns whether that was all.
    pub(super) fn drain_helper(&mut self, kind: HelperKind) -> bool {
        let (name, mut buffer) = (kind.name(), [0; _]);
        for _ in 0..ANSWERS_PER_TURN {
            match self.helper(kind).as_ref().and_then(|helper| helper.answer(&mut buffer)) {
                None => return true,
                Some(HelperEvent::Printed(_)) if !self.logs_output(kind) => {}
                Some(HelperEvent::Printed(line)) => {
                    info!("{}: {}", name, DisplayArg(OsStr::from_bytes(line).display()));
                }
                Some(HelperEvent::Ended(end, dropped)) => {
                    if dropped > 0 && self.logs_output(kind) {
                        warning!("{}: {} more bytes of output discarded", name, dropped);
                    }
                    self.dispatch(&Input::Helper(kind, HelperNews::Ended(end)));
                }
                Some(HelperEvent::Restarted(aborted)) => {
                    self.dispatch(&Input::Helper(kind, HelperNews::Restarted));
                    if let Some(end) = aborted {
                        self.dispatch(&Input::Helper(kind, HelperNews::Ended(end)));
                    }
                }
                Some(HelperEvent::Gone) => {
                    *self.helper(kind) = None;
                    self.dispatch(&Input::Helper(kind, HelperNews::Gone));
                }
            }
        }
        false
    }
}
