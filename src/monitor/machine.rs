//! The monitor as a whole: a list of features, each of which is asked in turn what is to be done.

use super::agent::Outbox;
use super::announce::Announcer;
use super::conntrack::SyncSequence;
use super::elsewhere::Elsewhere;
use super::exit::Exit;
use super::hook::HookSchedule;
use super::journal::Journal;
use super::namespace::NamespaceLook;
use super::resync::{DumpKind, Resync};
use super::service_manager::ManagerNotifier;
use super::split_brain::Detector;
use super::state_file::StateFile;
use super::status::MetricsSchedule;
use super::vip::Vip;
use super::{
    Action, AnnounceTiming, Cause, Dump, Duration, ExitReason, Instant, LogEvent, ManagerNotice,
    NamespaceCheck, Renotify, State, Status, Tables, Trouble, Troubles,
};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Mac;

/// What to watch.
#[derive(Debug)]
pub struct MonitorConfig<'a> {
    /// The interface that carries the VIP.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
    /// The port of the netlink socket, by which replies to its requests are known.
    pub port: u32,
    /// Differs between processes.
    pub seed: u32,
    /// Announce addresses like this.
    pub announce: Option<(AnnounceTiming, &'a mut Tables)>,
    /// Listen for other stations that claim the VIP.
    pub detect_split_brain: bool,
    /// And probe for them this often.
    pub probe_interval: Option<Duration>,
    /// Tell an agent.
    pub notify_agent: bool,
    /// When to tell an agent that was away again.
    pub renotify: Renotify,
    /// Run conntrackd's commands on each transition.
    pub sync_conntrack: bool,
    /// Run the hook on each change of what it is told.
    pub hook: bool,
    /// Write metrics.
    pub write_metrics: bool,
    /// What tells that the network namespace may have been deleted.
    pub check_namespace: NamespaceCheck,
    /// Tell a service manager how the daemon fares.
    pub tell_manager: bool,
    /// Give it a sign of life this often.
    pub watchdog: Option<Duration>,
}

impl MonitorConfig<'_> {
    /// Watches a VIP and does nothing else: every feature is off. `port` is the netlink socket's.
    #[must_use]
    pub fn new(interface: InterfaceName, vip: Cidr, port: u32) -> Self {
        Self {
            interface,
            vip,
            port,
            seed: 1,
            announce: None,
            detect_split_brain: false,
            probe_interval: None,
            notify_agent: false,
            renotify: Renotify::new(),
            sync_conntrack: false,
            hook: false,
            write_metrics: false,
            check_namespace: NamespaceCheck::Never,
            tell_manager: false,
            watchdog: None,
        }
    }
}

/// How long the kernel may take to delete an interface that it has set down.
const DELETION: Duration = Duration::from_millis(200);

/// The state machine: see [`crate::monitor`].
#[derive(Debug)]
pub struct Monitor<'a> {
    pub(super) journal: Journal,
    pub(super) resync: Resync,
    pub(super) vip: Vip,
    pub(super) elsewhere: Elsewhere,
    pub(super) address_filter: AddressFilter,
    /// Which interface has the watched name for an alternative one, once that has been said.
    pub(super) alt_name_owner: Option<InterfaceName>,
    /// The last state reported, and since when it has been so.
    pub(super) reported: Option<(State, Instant)>,
    /// Why that changed, until it has been logged, and when it is to be.
    pub(super) change: Option<(Cause, Instant)>,
    /// Report as soon as nothing is left to be listed, even if nothing has changed.
    pub(super) report_again: bool,
    pub(super) state_file: StateFile,
    pub(super) outbox: Option<Outbox>,
    pub(super) conntrack: Option<SyncSequence>,
    pub(super) hook: Option<HookSchedule>,
    pub(super) announcer: Option<Announcer<'a>>,
    pub(super) detector: Option<Detector>,
    pub(super) metrics: Option<MetricsSchedule>,
    pub(super) namespace: NamespaceLook,
    pub(super) manager: Option<ManagerNotifier>,
    pub(super) exit: Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressFilter {
    All,
    /// On the interface with this index, if any.
    Only(Option<u32>),
}

impl<'a> Monitor<'a> {
    /// It begins to act at the first [`super::Input::QueueEmpty`].
    #[must_use]
    pub fn new(config: MonitorConfig<'a>) -> Self {
        let seed = config.seed;
        Self {
            journal: Journal::default(),
            resync: Resync::new(config.port, seed),
            vip: Vip::new(config.interface, config.vip),
            elsewhere: Elsewhere::default(),
            address_filter: AddressFilter::All,
            alt_name_owner: None,
            reported: None,
            change: None,
            report_again: false,
            state_file: StateFile::new(seed),
            outbox: config.notify_agent.then(|| Outbox::new(seed, config.renotify)),
            conntrack: config.sync_conntrack.then(SyncSequence::new),
            hook: config.hook.then(|| HookSchedule::new(seed)),
            announcer: config.announce.map(|(timing, tables)| Announcer::new(timing, tables)),
            detector: config.detect_split_brain.then(|| Detector::new(config.probe_interval)),
            metrics: config.write_metrics.then(MetricsSchedule::default),
            namespace: NamespaceLook::new(config.check_namespace),
            manager: config.tell_manager.then(|| ManagerNotifier::new(config.watchdog)),
            exit: Exit::default(),
        }
    }

    /// The next thing to be done at `now`, the time of the last input. The order is that of the duties.
    pub fn next_action(&mut self, now: Instant) -> Option<Action> {
        // What has just happened, before anything that follows from it.
        (self.journal.next_action())
            // Before the dump that shows what the filter has kept back.
            .or_else(|| self.filter_addresses())
            // Before the report, which after a reload waits for what is to be listed.
            .or_else(|| self.request_dump(now))
            .or_else(|| self.report(now))
            // A disk may hang. So nobody is told before the file has been written or has failed.
            .or_else(|| {
                self.state_file.next_action(now).inspect(|action| self.note_ready(action, now))
            })
            .or_else(|| self.outbox.as_mut()?.next_action(now))
            // These two have a process each, so neither delays the other.
            .or_else(|| self.conntrack.as_mut()?.next_action(now))
            .or_else(|| self.run_hook(now))
            // None of the following may delay a report.
            .or_else(|| self.log_change(now))
            .or_else(|| self.watch_claims(now))
            .or_else(|| self.send_frame(now))
            .or_else(|| self.notify_manager())
            // Nobody waits for the figures, and their disk may hang, too.
            .or_else(|| self.write_metrics())
            .or_else(|| self.namespace.next_action(now))
            .or_else(|| self.leave(now))
    }

    /// When [`super::Input::QueueEmpty`] is due. None: not before something else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let is_settled = self.resync.is_settled();
        let counters = &self.journal.counters;
        let reported = self.reported.is_some();
        let timers = [
            self.resync.deadline(),
            self.state_file.deadline(),
            self.outbox.as_ref().and_then(Outbox::deadline),
            self.conntrack.as_ref().and_then(SyncSequence::deadline),
            (self.hook.as_ref().filter(|_| self.exit.leaves_time_for_the_hook()))
                .and_then(HookSchedule::deadline),
            self.detector.as_ref().and_then(|detector| detector.deadline(is_settled)),
            // As long as the state is in doubt no frame goes out; the dump has a deadline of its own.
            (self.announcer.as_ref().filter(|_| !self.resync.is_state_in_doubt()))
                .and_then(Announcer::deadline),
            self.manager.as_ref().and_then(ManagerNotifier::deadline),
            self.metrics.as_ref().filter(|_| reported).and_then(|m| m.deadline(counters)),
            self.namespace.deadline(),
            self.exit.deadline(),
            self.change.map(|(_, due)| due),
        ];
        timers.into_iter().flatten().min()
    }

    /// What there is to be shown on request.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            state: self.reported.map(|(state, _)| state),
            changed_at: self.reported.map(|(_, since)| since),
            ifindex: self.vip.ifindex(),
            undelivered: self.outbox.as_ref().and_then(Outbox::undelivered),
            hook_pending: self.hook.as_ref().and_then(HookSchedule::pending),
            troubles: self.troubles(),
            claimant: self.claimant(),
            counters: self.journal.counters,
        }
    }

    fn claimant(&self) -> Option<Mac> {
        self.detector.as_ref()?.claimant()
    }

    /// What is wrong, the worst first.
    fn troubles(&self) -> Troubles {
        let is_backup = self.vip.state() == Some(State::Backup);
        let agent_fails = self.outbox.as_ref().is_some_and(Outbox::is_failing);
        let hook_fails = self.hook.as_ref().is_some_and(HookSchedule::is_failing);
        [
            self.claimant().map(Trouble::SplitBrain),
            self.vip.is_interface_absent().then_some(Trouble::InterfaceAbsent),
            self.elsewhere.place.filter(|_| is_backup),
            self.vip.has_failed().then_some(Trouble::DuplicateAddress),
            agent_fails.then_some(Trouble::AgentFails),
            hook_fails.then_some(Trouble::HookFails),
        ]
    }

    /// Whether what the hook has printed in a run that ends now is to be logged: of runs that fail again, once a minute.
    #[must_use]
    pub fn logs_hook_output(&self, now: Instant) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.logs_output(&self.journal, now))
    }

    /// Keeps the filter for addresses on the watched interface.
    ///
    /// To announce the addresses of all interfaces one has to hear of them all, and of their end.
    fn filter_addresses(&mut self) -> Option<Action> {
        let ifindex = self.vip.ifindex();
        let wanted = AddressFilter::Only(ifindex);
        if self.announcer.is_some() || self.address_filter == wanted {
            return None;
        }
        self.address_filter = wanted;
        Some(Action::SetAddressFilter(ifindex))
    }

    fn request_dump(&mut self, now: Instant) -> Option<Action> {
        loop {
            if self.elsewhere.search_due {
                self.resync.request(DumpKind::Everywhere);
            }
            if self.announcer.as_mut().is_some_and(Announcer::needs_dump) {
                self.resync.request(DumpKind::Others);
            }
            // None: what was to be listed has been seen, or has gone, meanwhile.
            let dump = match self.resync.next(now)? {
                DumpKind::Links => {
                    self.vip.links_begin();
                    self.elsewhere.search_due = true;
                    if let Some(announcer) = &mut self.announcer {
                        announcer.links_begin(&mut self.journal.counters);
                    }
                    Some(Dump::Links)
                }
                DumpKind::Interface if self.vip.is_interface_seen() => {
                    self.resync.request(DumpKind::Addresses);
                    None
                }
                DumpKind::Interface => Some(Dump::Interface),
                DumpKind::Addresses => self.vip.addresses_begin().map(Dump::Addresses),
                DumpKind::Others => {
                    self.announcer.as_mut().and_then(Announcer::listing_begin).map(Dump::Others)
                }
                DumpKind::Everywhere => {
                    self.elsewhere.search_due = false;
                    Some(Dump::Everywhere)
                }
            };
            if let Some(dump) = dump {
                self.journal.counters.dumps += 1;
                let sequence = self.resync.begin(dump, now);
                return Some(Action::RequestDump { dump, sequence });
            }
        }
    }

    /// Has everybody told of the state who has yet to be. Returns a line that cannot wait.
    fn report(&mut self, now: Instant) -> Option<Action> {
        let again = self.report_again && self.resync.is_settled();
        if let (Some(hook), Some(state)) = (&mut self.hook, self.vip.hook_state()) {
            hook.post(state, again, now);
        }
        let state = self.vip.state()?;
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_role(state == State::Active, self.vip.mac(), now);
        }
        let last = self.reported.map(|(state, _)| state);
        let is_new = last != Some(state);
        if !is_new && !again {
            return None;
        }
        if is_new {
            self.reported = Some((state, now));
            self.journal.counters.transitions += 1;
            if let Some(conntrack) = &mut self.conntrack {
                conntrack.post(state);
            }
        }
        self.report_again &= !again;
        self.state_file.post(state, !self.report_again, now);
        if let Some(outbox) = &mut self.outbox {
            outbox.post(state, now);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.request();
        }
        let line = if last.is_none() {
            Some(LogEvent::Initial(state))
        } else if is_new {
            let cause = self.vip.cause();
            let wait = if cause == Cause::InterfaceDown { DELETION } else { Duration::ZERO };
            self.change.replace((cause, now + wait)).map(|(cause, _)| LogEvent::Changed(cause))
        } else {
            None
        };
        line.map(Action::Log)
    }

    /// Logs the last change once what came with it has been read: the kernel sets an interface down and takes its
    /// addresses before it says that it is gone.
    fn log_change(&mut self, now: Instant) -> Option<Action> {
        let (is_read, leaves) = (self.resync.is_queue_empty(now), self.exit.reason().is_some());
        let (cause, _) = self.change.take_if(|(_, due)| leaves || is_read && now >= *due)?;
        let is_gone = self.vip.cause() == Cause::InterfaceGone;
        let cause = if is_gone { Cause::InterfaceGone } else { cause };
        Some(Action::Log(LogEvent::Changed(cause)))
    }

    fn note_ready(&mut self, action: &Action, now: Instant) {
        if let (Action::SignalReady, Some(manager)) = (action, &mut self.manager) {
            manager.handle_ready(now);
        }
    }

    fn run_hook(&mut self, now: Instant) -> Option<Action> {
        if self.exit.leaves_time_for_the_hook() {
            self.hook.as_mut()?.next_action(now)
        } else {
            None
        }
    }

    /// Has claims of the VIP received as long as it is here.
    fn watch_claims(&mut self, now: Instant) -> Option<Action> {
        let is_active = self.vip.state() == Some(State::Active);
        let wanted = self.vip.ifindex().filter(|_| is_active);
        let is_certain = self.resync.is_queue_empty(now) && self.resync.is_settled();
        let action = self.detector.as_mut()?.next_action(wanted, self.vip.mac(), is_certain, now);
        if let Some(Action::Log(LogEvent::SplitBrainOver { .. })) = action
            && let (Some(announcer), Some(vip)) = (&mut self.announcer, self.vip.key())
        {
            announcer.announce_again(vip, now);
        }
        action
    }

    /// Sends a frame: one, as from then on it is not certain that the VIP is here. So nothing else has to wait.
    fn send_frame(&mut self, now: Instant) -> Option<Action> {
        if !self.resync.is_queue_empty(now) || self.resync.is_state_in_doubt() {
            return None;
        }
        self.announcer.as_mut()?.next_action(now)
    }

    /// Whoever is about to leave shows nothing any more.
    fn notify_manager(&mut self) -> Option<Action> {
        self.manager.as_ref()?;
        let troubles = self.troubles();
        let shown = self.reported.filter(|_| self.exit.reason().is_none());
        let status = shown.map(|(state, _)| ManagerNotice::Status { state, troubles });
        self.manager.as_mut()?.next_action(status)
    }

    fn write_metrics(&mut self) -> Option<Action> {
        self.metrics.as_ref()?;
        let status = self.status();
        let metrics = self.metrics.as_mut()?;
        metrics.follow(&status);
        metrics.next_action()
    }

    fn leave(&mut self, now: Instant) -> Option<Action> {
        let outbox = self.outbox.as_ref();
        let is_known = !self.resync.is_state_in_doubt();
        let agent_has_it = outbox.and_then(Outbox::undelivered).is_none();
        let is_delivered = agent_has_it && self.state_file.is_written();
        let is_reported = match self.exit.reason()? {
            // What was so when the exit was asked for is reported. But whoever asks does not wait for a disk
            // that is full or an agent that is not there.
            ExitReason::Signal(_) => is_known,
            // This is news that should arrive.
            ExitReason::HelperGone(_) => is_known && is_delivered,
            ExitReason::NamespaceGone => {
                is_delivered && self.hook.as_ref().is_none_or(HookSchedule::is_done)
            }
        };
        let is_connected = outbox.is_some_and(Outbox::is_connected);
        self.exit.next_action(is_reported && !is_connected, now)
    }
}
