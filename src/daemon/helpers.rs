//! Events from the processes that run programs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::event_loop::Daemon;
use crate::log::{DisplayArg, info, warning};
use crate::monitor::{HelperKind, HelperNews, Input, Request};
use crate::sys::helper::Helper;
use crate::wire::helper::HelperEvent;

/// Events taken in one turn, so that they starve nothing else.
const EVENTS_PER_TURN: usize = 16;

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

    fn logs_output(&self, kind: HelperKind) -> bool {
        kind == HelperKind::Conntrackd || self.monitor.logs_hook_output()
    }

    /// Handles what has come from a helper, but only so much in one turn. Returns whether that was all.
    pub(super) fn drain_helper(&mut self, kind: HelperKind) -> bool {
        let (name, mut buffer) = (kind.name(), [0; _]);
        for _ in 0..EVENTS_PER_TURN {
            let helper = self.helper(kind).as_mut();
            let Some(event) = helper.and_then(|helper| helper.recv_event(&mut buffer)) else {
                return true;
            };
            match event {
                HelperEvent::Printed(line) => {
                    if self.logs_output(kind) {
                        info!("{}: {}", name, DisplayArg(OsStr::from_bytes(line).display()));
                    }
                }
                HelperEvent::Ended { end, discarded, killed } => {
                    if discarded > 0 && self.logs_output(kind) {
                        warning!("{}: {} more bytes of output discarded", name, discarded);
                    }
                    if killed > 0 && self.logs_output(kind) {
                        warning!("{}: processes of the failed run killed: {}", name, killed);
                    }
                    self.dispatch(&Input::Helper(kind, HelperNews::Ended(end)));
                }
                HelperEvent::Gone => {
                    *self.helper(kind) = None;
                    self.dispatch(&Input::Helper(kind, HelperNews::Gone));
                }
            }
        }
        false
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
