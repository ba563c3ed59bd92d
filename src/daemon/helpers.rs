//! The processes that run programs: what they are asked for, and what they report.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::event_loop::Daemon;
use crate::log::{DisplayArg, info, warning};
use crate::monitor::{HelperKind, HelperNews, Input, Request};
use crate::sys::clock;
use crate::sys::helper::Helper;
use crate::wire::helper::{MAX_LINE, MAX_LINES, Report};

impl Daemon<'_> {
    fn helper(&mut self, kind: HelperKind) -> &mut Option<Helper> {
        match kind {
            HelperKind::Conntrackd => &mut self.conntrackd,
            HelperKind::Hook => &mut self.hook,
        }
    }

    /// Asks for a run. A helper that has gone is noticed by the end of the channel.
    pub(super) fn request(&mut self, request: Request) {
        if let Some(helper) = self.helper(request.helper()) {
            helper.run(request);
        }
    }

    /// Handles what has come from a helper: the report of a run, or its end.
    pub(super) fn handle_helper(&mut self, kind: HelperKind, buffer: &mut [u8]) {
        while let Some(helper) = self.helper(kind) {
            let news = match helper.receive(buffer) {
                Ok(None) => return,
                Ok(Some(report)) => {
                    let is_hook = kind == HelperKind::Hook;
                    if !is_hook || self.monitor.logs_hook_output(clock::now()) {
                        log_run(kind.name(), &report);
                    }
                    HelperNews::Ended(report.end)
                }
                Err(_) => {
                    *self.helper(kind) = None;
                    HelperNews::Gone
                }
            };
            self.dispatch(&Input::Helper(kind, news));
        }
    }

    /// Says what the helpers kill as the daemon ends now.
    pub(super) fn log_kills(&self) {
        for (helper, kind) in
            [(&self.conntrackd, HelperKind::Conntrackd), (&self.hook, HelperKind::Hook)]
        {
            if helper.as_ref().is_some_and(Helper::is_busy) {
                warning!("{} still running; killed", kind.name());
            }
        }
    }
}

fn log_run(name: &str, report: &Report<'_>) {
    let pieces = report.output.split(|byte| *byte == b'\n').flat_map(|line| line.chunks(MAX_LINE));
    for (number, line) in pieces.enumerate() {
        if number == MAX_LINES {
            warning!("{}: more output discarded", name);
            break;
        }
        info!("{}: {}", name, DisplayArg(OsStr::from_bytes(line).display()));
    }
    if report.killed > 0 {
        warning!("{}: processes of the failed run killed: {}", name, report.killed);
    }
}
