//! What comes from the processes that run programs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::event_loop::Daemon;
use crate::log::{DisplayArg, info, warning};
use crate::monitor::{CommandResult, Input};
use crate::sys::helper::{Helper, HelperEvent};
use crate::wire::helper::Request;

/// Lines that a program has printed, and ends of programs, taken in one turn, so that they starve nobody.
const ANSWERS_PER_TURN: usize = 16;

/// What a process runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Runs {
    Conntrackd,
    Hook,
}

impl Runs {
    fn name(self) -> &'static str {
        match self {
            Self::Conntrackd => "conntrackd",
            Self::Hook => "hook",
        }
    }

    fn ended(self, end: CommandResult) -> Input {
        match self {
            Self::Conntrackd => Input::CommandEnded(end),
            Self::Hook => Input::HookEnded(end),
        }
    }

    fn restarted(self) -> Input {
        match self {
            Self::Conntrackd => Input::HelperRestarted,
            Self::Hook => Input::HookHelperRestarted,
        }
    }

    fn gone(self) -> Input {
        match self {
            Self::Conntrackd => Input::HelperGone,
            Self::Hook => Input::HookHelperGone,
        }
    }
}

impl Daemon<'_> {
    fn helper(&mut self, runs: Runs) -> &mut Option<Helper> {
        match runs {
            Runs::Conntrackd => &mut self.conntrackd,
            Runs::Hook => &mut self.hook,
        }
    }

    /// Asks for a run. Returns what comes of it at once.
    pub(super) fn request(&mut self, request: Request) -> Option<Input> {
        let runs = match request {
            Request::Sync(_) => Runs::Conntrackd,
            Request::Hook(_) => Runs::Hook,
        };
        let requested = self.helper(runs).as_mut()?.run(request);
        requested.err().map(|_| runs.gone())
    }

    fn logs_output(&self, runs: Runs) -> bool {
        matches!(runs, Runs::Conntrackd) || self.monitor.logs_hook_output()
    }

    /// Takes what has come from a helper.
    pub(super) fn handle_helper(&mut self, runs: Runs) {
        let (name, mut buffer) = (runs.name(), [0; _]);
        for _ in 0..ANSWERS_PER_TURN {
            match self.helper(runs).as_ref().and_then(|helper| helper.answer(&mut buffer)) {
                None => return,
                Some(HelperEvent::Printed(_)) if !self.logs_output(runs) => {}
                Some(HelperEvent::Printed(line)) => {
                    info!("{}: {}", name, DisplayArg(OsStr::from_bytes(line).display()));
                }
                Some(HelperEvent::Ended(end, dropped)) => {
                    if dropped > 0 && self.logs_output(runs) {
                        warning!("{}: {} more bytes of output discarded", name, dropped);
                    }
                    self.dispatch(&runs.ended(end));
                }
                Some(HelperEvent::Restarted(aborted)) => {
                    self.dispatch(&runs.restarted());
                    if let Some(end) = aborted {
                        self.dispatch(&runs.ended(end));
                    }
                }
                Some(HelperEvent::Gone) => {
                    *self.helper(runs) = None;
                    self.dispatch(&runs.gone());
                }
            }
        }
    }
}
