//! Announcements that go out.

use super::{Announcer, Monitor};
use crate::errno::Errno;
use crate::monitor::{Action, AddressKey, Instant, LogEvent, State};

impl<'a> Monitor<'a> {
    /// Tells the announcer what this router is now.
    pub(super) fn follow_role(&mut self) {
        let active = self.vip.state() == Some(State::Active);
        let watched = self.vip.mac();
        self.with_announcer(|announcer, now| announcer.on_role(active, watched, now));
    }

    /// When the next frame is due. As long as the state is in doubt none goes out, and the dump has a deadline
    /// of its own.
    pub(super) fn frame_deadline(&self) -> Option<Instant> {
        let announcer = self.announcer.as_ref().filter(|_| !self.resync.is_state_in_doubt());
        announcer.and_then(Announcer::deadline)
    }

    /// Sends one frame at a time, so that nothing else has to wait for them.
    pub(super) fn send_frame(&mut self) {
        if self.resync.is_state_in_doubt() {
            return;
        }
        let announcement = self.announcer.as_mut().and_then(|announcer| announcer.next(self.now));
        if let Some(announcement) = announcement {
            self.push(Action::SendFrame(announcement));
        }
    }

    pub(super) fn on_sent(&mut self, address: AddressKey, sent: Result<(), Errno>) {
        let Some(announcer) = &mut self.announcer else { return };
        let interface = announcer.name(address.ifindex);
        announcer.on_sent(address, self.now);
        let Err(errno) = sent else {
            self.counters.announcements += 1;
            return;
        };
        self.counters.announcement_failures += 1;
        if let Some(interface) = interface {
            self.log_limited(&|count| LogEvent::NotAnnounced { interface, errno, count });
        }
    }

    /// Updates the announcer, if there is one.
    pub(super) fn with_announcer(&mut self, update: impl FnOnce(&mut Announcer<'a>, Instant)) {
        let Some(announcer) = &mut self.announcer else { return };
        update(announcer, self.now);
        self.log_shortage();
    }

    /// Says what the announcer has no room for, if that has become more.
    fn log_shortage(&mut self) {
        let Some(announcer) = &self.announcer else { return };
        let (unannounced, ignored) = (announcer.dropped, announcer.ignored_links);
        let counters = &mut self.counters;
        let logged = (counters.unannounced, counters.ignored_links);
        (counters.unannounced, counters.ignored_links) = (unannounced.into(), ignored.into());
        if logged.0 < unannounced.into() {
            self.log_limited(&|_| LogEvent::TooManyAddresses { total: unannounced });
        }
        if logged.1 < ignored.into() {
            self.log_limited(&|_| LogEvent::TooManyLinks { ignored });
        }
    }
}
