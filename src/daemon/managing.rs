//! What the service manager is told, in words.

use super::Daemon;
use crate::monitor::{ManagerNotice, State, Summary};
use crate::wire::sd_notify::Message;

impl Daemon<'_> {
    /// Tells the service manager, if there is one.
    pub(super) fn tell_manager(&self, notice: ManagerNotice) {
        let Some(manager) = self.starter.manager() else { return };
        let summary = match notice {
            ManagerNotice::Reloading(at) => {
                return manager.send(&Message::Reloading(at.total_micros()));
            }
            ManagerNotice::Stopping => return manager.send(&Message::Stopping),
            ManagerNotice::Alive => return manager.send(&Message::Alive),
            ManagerNotice::Summary(summary) => summary,
        };
        let (state, verb) = match summary {
            Summary::Active => (State::Active, "is on"),
            Summary::Backup => (State::Backup, "is not on"),
            Summary::InterfaceMissing => (State::Backup, "is absent; waiting for interface"),
        };
        let context = &self.context;
        let (word, vip, interface) = (state.word(context.active), context.vip, context.interface);
        manager.send(&Message::Status(format_args!("{word}: {vip} {verb} {interface}")));
    }
}
