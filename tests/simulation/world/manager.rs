//! The service manager: what it is told is true, in order, and its signs of life come in time.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Cause, Dump, Duration, Input, Instant, ManagerNotice, State, Status, Trouble, Troubles,
};
use keepwatch::wire::rtnl::{Address, Body};
use netlink_packet_route::link::LinkFlags;

use super::Simulation;
use super::retry::Retry;

/// Longer than the longest wait for a retry, which it would hide.
pub const PERIOD: Duration = Duration::from_secs(20);

/// What has been told, whether there is anybody to hear it or not.
#[derive(Default, Debug)]
pub struct Manager {
    /// The state file has been written since what was to be reported first, or again, was asked for.
    pub written: bool,
    /// It was told to be ready, once at least.
    pub ready: bool,
    /// It has no room for notices.
    pub is_full: bool,
    /// When the last notice found it full.
    refused: Option<Instant>,
    pub retry: Retry,
    /// What that was.
    rejected: Option<ManagerNotice>,
    /// When everything was last asked for again, and whether it was told that this is under way.
    reloaded: Option<Instant>,
    reloading: bool,
    stopping: bool,
    shown: Option<(State, Troubles)>,
    /// When the last sign of life came, or the first was ordered.
    alive: Option<Instant>,
}

impl Simulation<'_> {
    /// Everything is asked for again.
    pub(super) fn reload(&mut self) {
        (self.manager.reloaded, self.manager.written) = (Some(self.now), false);
    }

    /// Whoever waits may go on.
    pub(super) fn be_ready(&mut self) {
        let manager = &mut self.manager;
        assert!(!manager.ready || manager.reloading, "p14_readiness_is_waited_for");
        assert!(manager.written, "p2_file_before_readiness");
        (manager.ready, manager.reloading) = (true, false);
        if self.options.has_watchdog {
            manager.alive.get_or_insert(self.now);
        }
    }

    /// Takes a notice, if there is room for it.
    pub(super) fn notify_manager(&mut self, notice: ManagerNotice) -> Input {
        assert!(self.options.has_manager, "p14_there_is_a_manager");
        let manager = &mut self.manager;
        let rested = |at| self.now >= at + Duration::from_millis(50);
        assert!(manager.refused.take().is_none_or(rested), "p14_manager_is_not_hammered");
        manager.retry.begin();
        manager.rejected = Some(notice);
        if manager.is_full {
            manager.retry.fail(self.now);
            manager.refused = Some(self.now);
            return Input::ManagerNotified(Err(Errno(11)));
        }
        manager.retry.be_anew();
        match notice {
            ManagerNotice::Ready => self.be_ready(),
            ManagerNotice::Status => {
                let Status { state, troubles, .. } = self.monitor.status();
                let shown = state.map(|state| (state, troubles));
                assert_ne!(
                    std::mem::replace(&mut manager.shown, shown),
                    shown,
                    "p14_status_is_news"
                );
                assert_eq!(self.reported, state, "p14_report_before_status");
                assert!(!manager.stopping, "p14_no_status_at_the_end");
            }
            ManagerNotice::Reloading(at) => {
                assert_eq!(manager.reloaded.take(), Some(at), "p14_reload_is_told_once");
                manager.reloading = true;
            }
            ManagerNotice::Stopping => {
                assert!(!manager.stopping && self.leave_by.is_some(), "p14_end_is_told_once");
                manager.stopping = true;
            }
            ManagerNotice::Alive => self.live_on(),
        }
        Input::ManagerNotified(Ok(()))
    }

    /// It was a status that there was no room for, and that is not to be shown any more.
    pub(super) fn manager_wants_nothing(&self) -> bool {
        let Status { state, troubles, .. } = self.monitor.status();
        let is_shown = self.manager.shown == state.map(|state| (state, troubles));
        let is_status = self.manager.rejected == Some(ManagerNotice::Status);
        is_status && (is_shown || self.leave_by.is_some())
    }

    /// A sign of life that was due at this time, whatever has kept it since.
    fn live_on(&mut self) {
        let last = self.manager.alive.replace(self.now);
        assert!(last.is_some_and(|last| self.now >= last + PERIOD), "p14_signs_of_life_are_few");
    }

    /// The next sign of life is scheduled, and none is late once the core has been given a tick.
    pub(super) fn will_live(&self, ticked: Option<Instant>) {
        let Some(alive) = self.manager.alive else { return };
        let due = alive + PERIOD;
        if self.manager.refused.is_some() {
            return;
        }
        assert!(
            self.monitor.deadline().is_some_and(|deadline| deadline <= due),
            "p14_sign_of_life_is_scheduled"
        );
        assert!(ticked.is_none_or(|now| now < due), "p14_sign_of_life_is_in_time");
    }

    /// What is wrong when everything works, and nothing more happens.
    pub(super) fn troubles(&self) -> Troubles {
        let is_absent = self.kernel.ifindex.is_none();
        let misplaced = self.misplaced();
        // Of several, any.
        let shown = self.monitor.status().troubles.into_iter().flatten();
        let shown = shown.into_iter().find(|shown| misplaced.contains(shown));
        let down = match self.kernel.flags {
            flags if !flags.contains(LinkFlags::Up) => Some(Cause::InterfaceDown),
            flags if !flags.contains(LinkFlags::Running) => Some(Cause::CarrierLost),
            _ => None,
        };
        let down = down.filter(|_| self.truth() == State::Active);
        [
            self.wire.claimant.map(Trouble::SplitBrain),
            None,
            self.disk.was_foreign.then_some(Trouble::StateFileShared),
            is_absent.then_some(Trouble::InterfaceAbsent),
            down.map(Trouble::InterfaceDown),
            shown.or(misplaced.first().copied()),
            (!is_absent && self.kernel.vip_failed).then_some(Trouble::DuplicateAddress),
            None,
            None,
            self.conntrackd.has_failed().then_some(Trouble::ConntrackdFails),
            self.disk.log_fails.then_some(Trouble::LogFails),
        ]
    }

    /// Where the VIP's address is instead.
    pub(super) fn misplaced(&self) -> Vec<Trouble> {
        let misplaced = |body| match body {
            Body::NewAddress(Address { ifindex, cidr, .. }) => {
                let vip = self.kernel.vip();
                let is_as_told = (Some(ifindex), cidr) == (self.kernel.ifindex, vip);
                let is_misplaced = cidr.address() == vip.address() && !is_as_told;
                is_misplaced.then_some(Trouble::Misplaced(ifindex, cidr))
            }
            _ => None,
        };
        let listed = self.listed((Dump::Addresses, None)).into_iter();
        listed.filter_map(misplaced).filter(|_| self.truth() == State::Backup).collect()
    }

    pub(super) fn manager_knows(&self) {
        if !self.options.has_manager {
            return;
        }
        let truth = Some((self.truth(), self.troubles()));
        assert_eq!(self.manager.shown, truth, "p14_status_is_true");
        assert!(!self.manager.reloading, "p14_reload_is_complete");
    }

    pub(super) fn manager_knows_the_end(&self) {
        let is_full = self.manager.refused.is_some();
        assert!(
            self.manager.stopping || is_full || !self.options.has_manager,
            "p14_manager_knows_the_end"
        );
    }
}
