//! Frames: announcements that go out, and claims of the VIP that come in.

use super::{Announcer, Monitor, count};
use crate::core::{Action, Instant, Note, Sent, State};
use crate::wire::Claim;

impl<'a> Monitor<'a> {
    /// Heeds claims of the VIP as long as it is ours.
    pub(super) fn listen(&mut self) {
        let active = self.detect_split_brain && self.vip.state() == Some(State::Active);
        let wanted = self.vip.ifindex().filter(|_| active);
        if wanted != self.listening {
            self.listening = wanted;
            if let Some(ifindex) = wanted {
                self.push(Action::Listen(ifindex));
            }
        }
    }

    pub(super) fn on_claim(&mut self, ifindex: u32, claim: &Claim) {
        let foreign = self.vip.mac().is_some_and(|mac| mac != claim.mac);
        if self.listening != Some(ifindex) || claim.ip != self.vip.ip() || !foreign {
            return;
        }
        let mac = claim.mac;
        count(&mut self.status.claims);
        self.status.claimant = Some(mac);
        if let Some(count) = self.stations.heard(mac, self.now) {
            self.push(Action::Log(Note::SplitBrain { mac, ifindex, count }));
        }
    }

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
