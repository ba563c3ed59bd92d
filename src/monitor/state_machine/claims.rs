//! Claims of the VIP that come in while it is ours.

use super::{Monitor, Vip};
use crate::monitor::split_brain::{Line, SplitBrain, virtual_router};
use crate::monitor::throttle::Throttle;
use crate::monitor::{Action, Instant, LogEvent, State};
use crate::wire::Claim;

/// What it takes to see a split brain.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// The interface on which claims are received.
    watched: Option<u32>,
    /// The interface may be another than the one that the socket was bound to, whatever its index.
    may_be_unbound: bool,
    stations: SplitBrain,
    throttle: Throttle,
}

impl Detector {
    /// The watched interface has come or gone.
    pub(super) fn on_interface_changed(&mut self) {
        self.may_be_unbound = true;
    }

    /// A dump of all links is complete. Events may have been lost before it, and with them the end of the watched
    /// interface and the beginning of another with its index.
    pub(super) fn links_end(&mut self) {
        self.may_be_unbound = true;
    }

    fn is_heard(&self, ifindex: u32, claim: &Claim, vip: &Vip) -> bool {
        self.watched == Some(ifindex) && claim.ip == vip.ip()
    }

    /// Whether it comes from another station. What we send ourselves is not heard, so what comes from a
    /// virtual MAC does, even if that is ours at the time.
    fn is_foreign(claim: &Claim, vip: &Vip) -> bool {
        let mac = claim.mac;
        vip.mac().is_some_and(|own| virtual_router(mac).is_some() || own != mac)
    }
}

impl Monitor<'_> {
    /// When a line is due or frames are to be read again. While it is not known whether the VIP is here, no
    /// claim is logged.
    pub(super) fn claim_deadline(&self) -> Option<Instant> {
        let detector = self.detector.as_ref()?;
        let line = detector.stations.deadline().filter(|_| self.resync.is_settled());
        [line, detector.throttle.deadline()].into_iter().flatten().min()
    }

    /// Has claims of the VIP received as long as it is ours.
    pub(super) fn update_claim_watch(&mut self) {
        let active = self.vip.state() == Some(State::Active);
        let wanted = self.vip.ifindex().filter(|_| active);
        let Some(detector) = &mut self.detector else { return };
        if wanted != detector.watched {
            detector.watched = wanted;
            detector.stations.on_vip_gone();
        } else if !detector.may_be_unbound {
            return;
        }
        if let Some(ifindex) = wanted {
            let rebind = core::mem::take(&mut detector.may_be_unbound);
            self.push(Action::WatchClaims { ifindex, rebind });
        }
    }

    pub(super) fn on_claim(&mut self, ifindex: u32, claim: &Claim) {
        self.on_frame();
        let Some(detector) = &mut self.detector else { return };
        if detector.is_heard(ifindex, claim, &self.vip) && Detector::is_foreign(claim, &self.vip) {
            self.counters.claims += 1;
            self.claimant = Some(claim.mac);
            detector.stations.on_claim(claim.mac, self.now);
        }
    }

    /// Handles that a frame was read, whatever it says.
    pub(super) fn on_frame(&mut self) {
        if self.detector.as_mut().is_some_and(|detector| detector.throttle.on_frame(self.now)) {
            self.push(Action::ReadFrames(false));
        }
    }

    /// Has frames read again, once the pause is over.
    pub(super) fn resume_reading(&mut self) {
        if self.detector.as_mut().is_some_and(|detector| detector.throttle.is_over(self.now)) {
            self.push(Action::ReadFrames(true));
        }
    }

    /// Logs one claim at a time, and only when it is known that the VIP is still here: the queue is
    /// empty.
    pub(super) fn log_claim(&mut self) {
        if !self.resync.is_settled() {
            return;
        }
        let Some(detector) = &mut self.detector else { return };
        let Some(ifindex) = detector.watched else { return };
        let line = match detector.stations.next_line(self.now) {
            Some(Line::Station(mac, count)) => LogEvent::SplitBrain { mac, ifindex, count },
            Some(Line::Others(count)) => LogEvent::MoreClaims { ifindex, count },
            None => return,
        };
        self.push(Action::Log(line));
    }
}
