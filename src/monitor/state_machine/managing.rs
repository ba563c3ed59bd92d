//! What the service manager is told, beside the reports.

use super::Monitor;
use crate::monitor::{Action, ManagerNotice};

impl Monitor<'_> {
    pub(super) fn tell_manager(&mut self, notice: ManagerNotice) {
        if self.manager.is_some() {
            self.push(Action::TellManager(notice));
        }
    }

    /// Tells whoever waits for it that the state file holds what it should: at the start, and after a reload.
    pub(super) fn signal_ready(&mut self) {
        let is_reported = self.reported.is_some() && !self.report_again && self.file.is_written();
        if self.ready_awaited && is_reported {
            self.ready_awaited = false;
            if let Some(manager) = &mut self.manager {
                manager.on_ready(self.now);
            }
            self.push(Action::SignalReady);
        }
    }

    /// Tells the service manager a new state once it has been reported. A sign of life tells that the loop works,
    /// so it waits until the queue has been read.
    pub(super) fn update_manager(&mut self, tick: bool) {
        let Some(manager) = &mut self.manager else { return };
        let is_alive = tick && manager.begin_sign(self.now);
        // A disk may hang, and much be otherwise when it is back.
        let is_told = !self.file.is_writing() && self.exit.is_none();
        let state = self.reported.filter(|_| is_told);
        let is_absent = self.vip.is_interface_absent();
        let summary = state.and_then(|state| manager.update(state, is_absent));
        if let Some(summary) = summary {
            self.push(Action::TellManager(ManagerNotice::Summary(summary)));
        }
        if is_alive {
            self.push(Action::TellManager(ManagerNotice::Alive));
        }
    }
}
