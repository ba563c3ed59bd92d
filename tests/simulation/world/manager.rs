//! The service manager: its notices are true and in order, and those for the watchdog come in time.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Cause, Duration, Input, Instant, ManagerNotice, Question, State, Status, Trouble, Troubles,
};
use keepwatch::wire::rtnl::{Address, Body};
use netlink_packet_route::link::LinkFlags;

use super::Simulation;
use super::retry::Retry;

/// Longer than the longest wait for a retry, which a shorter one would hide.
pub const PERIOD: Duration = Duration::from_secs(20);

/// The notices so far, even without a service manager.
#[derive(Default, Debug)]
pub struct Manager {
    /// The state file has been written since the start or the last reload.
    pub written: bool,
    /// At least one READY was sent.
    pub ready: bool,
    /// Its socket has no room for notices.
    pub is_full: bool,
    /// When the last notice failed because of that.
    refused: Option<Instant>,
    pub retry: Retry,
    /// That notice.
    rejected: Option<ManagerNotice>,
    /// When the last reload was requested.
    reloaded: Option<Instant>,
    /// RELOADING was sent for it.
    reloading: bool,
    stopping: bool,
    shown: Option<(State, Troubles)>,
    /// The time of the last WATCHDOG, or of the first READY.
    alive: Option<Instant>,
}

impl Simulation<'_> {
    /// Notes a reload.
    pub(super) fn reload(&mut self) {
        (self.manager.reloaded, self.manager.written) = (Some(self.now), false);
    }

    /// Asserts that READY is due.
    pub(super) fn signal_ready(&mut self) {
        let manager = &mut self.manager;
        assert!(!manager.ready || manager.reloading, "p14_readiness_is_waited_for");
        assert!(manager.written, "p2_file_before_readiness");
        (manager.ready, manager.reloading) = (true, false);
        if self.options.has_watchdog {
            manager.alive.get_or_insert(self.now);
        }
    }

    /// Receives a notice, if the socket has room.
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
        manager.retry.reset();
        match notice {
            ManagerNotice::Ready => self.signal_ready(),
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
                assert_eq!(manager.reloaded.take(), Some(at), "p14_reload_is_notified_once");
                manager.reloading = true;
            }
            ManagerNotice::Stopping => {
                assert!(!manager.stopping && self.leave_by.is_some(), "p14_end_is_notified_once");
                manager.stopping = true;
            }
            ManagerNotice::Alive => self.note_alive(),
        }
        Input::ManagerNotified(Ok(()))
    }

    /// Whether the failed notice was a status that is outdated by now.
    pub(super) fn manager_wants_nothing(&self) -> bool {
        let Status { state, troubles, .. } = self.monitor.status();
        let is_shown = self.manager.shown == state.map(|state| (state, troubles));
        let is_status = self.manager.rejected == Some(ManagerNotice::Status);
        is_status && (is_shown || self.leave_by.is_some())
    }

    /// Notes a WATCHDOG, and asserts that it was due.
    fn note_alive(&mut self) {
        let last = self.manager.alive.replace(self.now);
        assert!(last.is_some_and(|last| self.now >= last + PERIOD), "p14_watchdog_is_not_early");
    }

    /// Asserts that the next WATCHDOG is scheduled, and not late if the core has been polled at time `ticked`.
    pub(super) fn alive_is_in_time(&self, ticked: Option<Instant>) {
        let Some(alive) = self.manager.alive else { return };
        let due = alive + PERIOD;
        if self.manager.refused.is_some() {
            return;
        }
        assert!(
            self.monitor.deadline().is_some_and(|deadline| deadline <= due),
            "p14_watchdog_is_scheduled"
        );
        assert!(ticked.is_none_or(|now| now < due), "p14_watchdog_is_in_time");
    }

    /// Returns the troubles of a world at rest.
    pub(super) fn troubles(&self) -> Troubles {
        let is_absent = self.kernel.ifindex.is_none();
        let misplaced = self.misplaced();
        // Of several misplaced addresses, any may be shown.
        let shown = self.monitor.status().troubles.into_iter().flatten();
        let shown = shown.into_iter().find(|shown| misplaced.contains(shown));
        let down = match self.kernel.flags {
            flags if !flags.contains(LinkFlags::Up) => Some(Cause::InterfaceDown),
            flags if !flags.contains(LinkFlags::Running) => Some(Cause::CarrierLost),
            _ => None,
        };
        let down = down.filter(|_| !is_absent);
        [
            self.wire.claimant.map(Trouble::SplitBrain),
            None,
            self.disk.was_foreign.then_some(Trouble::StateFileShared),
            self.disk.spare_fails.then_some(Trouble::SpareFails),
            is_absent.then_some(Trouble::InterfaceAbsent),
            down.map(Trouble::InterfaceDown),
            shown.or(misplaced.first().copied()),
            (!is_absent && self.kernel.vip_failed).then_some(Trouble::DuplicateAddress),
            self.keepalived.is_trouble().then_some(Trouble::KeepalivedGone),
            None,
            None,
            self.conntrackd.has_failed().then_some(Trouble::ConntrackdFails),
            self.disk.log_fails.then_some(Trouble::LogFails),
        ]
    }

    /// Returns the misplaced addresses.
    pub(super) fn misplaced(&self) -> Vec<Trouble> {
        let misplaced = |body| match body {
            Body::NewAddress(Address { ifindex, cidr, .. }) => {
                let vip = self.kernel.vip();
                let is_vip = (Some(ifindex), cidr) == (self.kernel.ifindex, vip);
                let is_misplaced = cidr.address() == vip.address() && !is_vip;
                let Some(Body::NewLink(link)) = self.listed(Question::Link(ifindex)).pop() else {
                    panic!("p11_link_is_there")
                };
                let is_up = link.flags.contains(LinkFlags::Up | LinkFlags::Running);
                (is_misplaced && is_up).then_some(Trouble::Misplaced(link.name?, cidr))
            }
            _ => None,
        };
        let listed = self.listed(Question::Addresses { only: None }).into_iter();
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
