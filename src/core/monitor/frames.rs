//! Announcements that go out.

use super::{Announcer, Monitor, count};
use crate::core::{Action, Instant, Note, Sent};

impl<'a> Monitor<'a> {
    pub(super) fn announce(&mut self) {
        let announcement = self.announcer.as_mut().and_then(|announcer| announcer.next(self.now));
        if let Some(announcement) = announcement {
            self.push(Action::Announce(announcement));
        }
    }

    pub(super) fn on_sent(&mut self, sent: Sent) {
        match sent {
            Sent::Yes => count(&mut self.status.announcements),
            Sent::Failed => count(&mut self.status.announcement_failures),
            Sent::Blocked | Sent::QueueFull => {}
        }
        self.with_announcer(|announcer, now| announcer.on_sent(sent, now));
    }

    /// Lets the announcer take something in, if there is one.
    pub(super) fn with_announcer(&mut self, take: impl FnOnce(&mut Announcer<'a>, Instant)) {
        let Some(announcer) = &mut self.announcer else { return };
        take(announcer, self.now);
        let unannounced = announcer.dropped;
        if self.status.unannounced != unannounced {
            self.status.unannounced = unannounced;
            if self.repeats.unannounced.occurred(self.now).is_some() {
                self.push(Action::Log(Note::TooManyAddresses { total: unannounced }));
            }
        }
    }
}
