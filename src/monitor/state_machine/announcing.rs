//! Announcements that go out.

use super::{Announcer, Monitor, count};
use crate::monitor::{Action, AddressKey, Instant, LogEvent, Sent, State};

impl<'a> Monitor<'a> {
    /// Has the announcer know what this router is now.
    pub(super) fn follow_role(&mut self) {
        let active = self.vip.state() == Some(State::Active);
        let watched = self.vip.mac();
        self.with_announcer(|announcer, now| announcer.on_role(active, watched, now));
    }

    pub(super) fn announce(&mut self) {
        if self.resync.is_state_in_doubt() {
            return;
        }
        let announcement = self.announcer.as_mut().and_then(|announcer| announcer.next(self.now));
        if let Some(announcement) = announcement {
            self.push(Action::Announce(announcement));
        }
    }

    pub(super) fn on_sent(&mut self, address: AddressKey, sent: Sent) {
        if let Sent::Yes { .. } = sent {
            count(&mut self.status.announcements);
        }
        let now = self.now;
        let failed = self.announcer.as_mut().and_then(|a| a.on_sent(address, sent, now));
        let Some(interface) = failed else { return };
        count(&mut self.status.announcement_failures);
        if let Some(count) = self.rate_limits.not_announced.should_log(now) {
            self.push(Action::Log(LogEvent::NotAnnounced { interface, sent, count }));
        }
    }

    /// Lets the announcer take something in, if there is one.
    pub(super) fn with_announcer(&mut self, take: impl FnOnce(&mut Announcer<'a>, Instant)) {
        let Some(announcer) = &mut self.announcer else { return };
        take(announcer, self.now);
        self.tell_of_shortage();
    }

    /// Says what the announcer has no room for, if that has become more.
    fn tell_of_shortage(&mut self) {
        let Some(announcer) = &self.announcer else { return };
        let (unannounced, ignored) = (announcer.dropped, announcer.ignored_links);
        if core::mem::replace(&mut self.status.unannounced, unannounced) < unannounced
            && self.rate_limits.unannounced.should_log(self.now).is_some()
        {
            self.push(Action::Log(LogEvent::TooManyAddresses { total: unannounced }));
        }
        if core::mem::replace(&mut self.status.ignored_links, ignored) < ignored
            && self.rate_limits.ignored_links.should_log(self.now).is_some()
        {
            self.push(Action::Log(LogEvent::TooManyLinks { ignored }));
        }
    }
}
