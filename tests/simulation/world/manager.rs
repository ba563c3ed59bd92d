//! The service manager: what it is told is true, in order, and its signs of life come in time.

use keepwatch::monitor::{Duration, Instant, ManagerNotice, State, Trouble, Troubles};
use keepwatch::wire::rtnl::{Address, Body};

use super::Simulation;

/// Longer than the longest wait for a retry, which it would hide.
pub const PERIOD: Duration = Duration::from_secs(20);

/// What has been told, whether there is anybody to hear it or not.
#[derive(Default, Debug)]
pub struct Manager {
    /// The state file has been written since what was to be reported first, or again, was asked for.
    pub written: bool,
    /// It was told to be ready, once at least.
    pub ready: bool,
    reloading: bool,
    stopping: bool,
    shown: Option<ManagerNotice>,
    /// When the last sign of life came, or the first was ordered.
    alive: Option<Instant>,
}

impl Simulation<'_> {
    /// Whoever waits may go on.
    pub(super) fn be_ready(&mut self) {
        let manager = &mut self.manager;
        assert!(!manager.ready || manager.reloading, "nobody waits for that");
        assert!(manager.written, "the file comes first");
        (manager.ready, manager.reloading) = (true, false);
        if self.options.has_watchdog {
            manager.alive.get_or_insert(self.now);
        }
    }

    pub(super) fn tell_manager(&mut self, notice: ManagerNotice) {
        assert!(self.options.has_manager, "there is nobody to tell");
        let manager = &mut self.manager;
        match notice {
            ManagerNotice::Status { state, .. } => {
                assert_ne!(manager.shown.replace(notice), Some(notice), "nothing new");
                assert_eq!(self.reported, Some(state), "the report comes first");
                assert!(!manager.stopping, "nothing else matters any more");
            }
            ManagerNotice::Reloading(at) => {
                assert!(self.reloaded && at == self.fed_at);
                (manager.reloading, manager.written) = (true, false);
            }
            ManagerNotice::Stopping => {
                assert!(!manager.stopping && self.leave_by.is_some(), "once, when it leaves");
                manager.stopping = true;
            }
            ManagerNotice::Alive => self.live_on(),
        }
    }

    /// A sign of life that was due at this time, whatever has kept it since.
    fn live_on(&mut self) {
        assert!(self.at_empty_queue, "it has not read all that it could");
        let (due, last) = (self.fed_at, self.manager.alive.replace(self.fed_at));
        assert!(last.is_some_and(|last| due >= last + PERIOD), "nobody asked yet");
    }

    /// The next sign of life is scheduled, and none is late once the core has been given a tick.
    pub(super) fn will_live(&self, ticked: Option<Instant>) {
        let Some(alive) = self.manager.alive else { return };
        let due = alive + PERIOD;
        assert!(self.monitor.deadline().is_some_and(|deadline| deadline <= due), "not scheduled");
        assert!(ticked.is_none_or(|now| now < due), "no sign of life");
    }

    /// What is wrong when everything works, and nothing more happens.
    pub(super) fn troubles(&self) -> Troubles {
        let is_absent = self.kernel.ifindex.is_none();
        let misplaced = self.misplaced();
        // Of several, any.
        let shown = self.monitor.status().troubles[2].filter(|shown| misplaced.contains(shown));
        [
            self.wire.claimant.map(Trouble::SplitBrain),
            is_absent.then_some(Trouble::InterfaceAbsent),
            shown.or(misplaced.first().copied()),
            (!is_absent && self.kernel.vip_failed).then_some(Trouble::DuplicateAddress),
            None,
            None,
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
        let listed = self.listed_addresses(None).into_iter();
        listed.filter_map(misplaced).filter(|_| self.truth() == State::Backup).collect()
    }

    pub(super) fn manager_knows(&self) {
        if !self.options.has_manager {
            return;
        }
        let state = self.truth();
        let truth = ManagerNotice::Status { state, troubles: self.troubles() };
        assert_eq!(self.manager.shown, Some(truth), "what people see");
        assert!(!self.manager.reloading, "what it was asked for is done");
    }

    pub(super) fn manager_knows_the_end(&self) {
        assert!(self.manager.stopping || !self.options.has_manager, "that it stops");
    }
}
