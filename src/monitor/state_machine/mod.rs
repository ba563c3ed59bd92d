//! The monitor as a whole: inputs in, actions out.

mod announcing;
mod claims;
mod commands;
mod dumping;
mod exiting;
mod managing;
mod measuring;
mod reporting;

use super::announce::{AnnounceTiming, Announcer, Tables};
use super::conntrack::Conntrack;
use super::hook::Hook;
use super::metrics::Metrics;
use super::namespace::NamespaceLook;
use super::outbox::Outbox;
use super::rate_limit::RateLimits;
use super::resync::{DumpKind, Meaning, Resync};
use super::service_manager::ServiceManager;
use super::state_file::StateFile;
use super::vip::Vip;
use super::{
    Action, Actions, Control, Counters, Dump, DumpResult, Duration, Failure, Input, Instant,
    LogEvent, ManagerNotice, NamespaceCheck, Renotify, State, Status,
};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Body, Link, Mac, Message};
use claims::Detector;
use exiting::Exit;

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

/// The state machine.
#[derive(Debug)]
pub struct Monitor<'a> {
    /// The time of the present input.
    now: Instant,
    /// The answer to it, so far.
    actions: Actions,
    resync: Resync,
    vip: Vip,
    address_filter: AddressFilter,
    /// Which interface has the watched name for an alternative one, once that has been said.
    owner: Option<InterfaceName>,
    /// The last state reported.
    reported: Option<State>,
    /// When another than that was.
    changed_at: Option<Instant>,
    /// Report as soon as nothing is left to be listed, even if nothing has changed.
    report_again: bool,
    /// Somebody waits until what is to be reported is written.
    ready_awaited: bool,
    file: StateFile,
    notify_agent: bool,
    outbox: Outbox,
    conntrack: Option<Conntrack>,
    hook: Option<Hook>,
    announcer: Option<Announcer<'a>>,
    /// Sees other stations that claim the VIP, if wanted.
    detector: Option<Detector>,
    /// The last station that did.
    claimant: Option<Mac>,
    metrics: Option<Metrics>,
    namespace: NamespaceLook,
    manager: Option<ServiceManager>,
    exit: Option<Exit>,
    counters: Counters,
    rate_limits: RateLimits,
}

/// Which events of addresses the kernel lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressFilter {
    All,
    /// On the interface with this index, if any.
    Only(Option<u32>),
}

impl<'a> Monitor<'a> {
    /// It begins to act at the first [`Input::Tick`].
    #[must_use]
    pub fn new(config: MonitorConfig<'a>) -> Self {
        let seed = config.seed;
        Self {
            now: Instant::ZERO,
            actions: Actions::new(),
            resync: Resync::new(config.port, seed),
            vip: Vip::new(config.interface, config.vip),
            address_filter: AddressFilter::All,
            owner: None,
            reported: None,
            changed_at: None,
            report_again: false,
            ready_awaited: true,
            file: StateFile::new(seed),
            notify_agent: config.notify_agent,
            outbox: Outbox::new(seed, config.renotify),
            conntrack: config.sync_conntrack.then(Conntrack::new),
            hook: config.hook.then(|| Hook::new(seed)),
            announcer: config.announce.map(|(timing, tables)| Announcer::new(timing, tables)),
            detector: config.detect_split_brain.then(Detector::default),
            claimant: None,
            metrics: config.write_metrics.then(Metrics::new),
            namespace: NamespaceLook::new(config.check_namespace),
            manager: config.tell_manager.then(|| ServiceManager::new(config.watchdog)),
            exit: None,
            counters: Counters::default(),
            rate_limits: RateLimits::default(),
        }
    }

    /// Handles what happened at `now`. Returns what to do about it. Why the steps stand in this order is said
    /// in [`crate::monitor`].
    pub fn on(&mut self, input: &Input, now: Instant) -> Actions {
        self.now = now;
        let tick = *input == Input::Tick;
        self.handle(input);
        self.expire_timeouts(input);
        self.update_address_filter();
        self.request_dump(tick);
        self.report();
        self.signal_ready();
        self.notify();
        self.run_command();
        self.run_hook();
        self.update_claim_watch();
        self.resume_reading();
        self.follow_role();
        if tick {
            self.log_claim();
            self.send_frame();
        }
        self.update_manager(tick);
        self.write_metrics();
        if tick {
            self.check_namespace();
        }
        self.try_exit(tick);
        core::mem::take(&mut self.actions)
    }

    /// When the next [`Input::Tick`] is due. None: not before something else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let timers = [
            self.resync.deadline(),
            self.file.deadline(),
            self.outbox.deadline(),
            self.command_deadline(),
            self.hook_deadline(),
            self.claim_deadline(),
            self.frame_deadline(),
            self.metrics_deadline(),
            self.namespace.deadline(),
            self.manager.as_ref().and_then(ServiceManager::deadline),
            self.exit_deadline(),
        ];
        timers.into_iter().flatten().min()
    }

    /// What there is to be shown on request.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            state: self.reported,
            changed_at: self.changed_at,
            ifindex: self.vip.ifindex(),
            undelivered: self.outbox.undelivered(),
            claimant: self.claimant,
            counters: self.counters,
        }
    }

    fn push(&mut self, action: Action) {
        let pushed = self.actions.push(action);
        assert!(pushed.is_ok(), "more actions than there can be");
    }

    /// Logs an event of which there may be many, with their number, at most once a minute.
    // Once in the program, and not for every event.
    #[inline(never)]
    fn log_limited(&mut self, event: &dyn Fn(u32) -> LogEvent) {
        if let Some(event) = self.rate_limits.limit(event, self.now) {
            self.push(Action::Log(event));
        }
    }

    fn handle(&mut self, input: &Input) {
        match input {
            Input::Netlink(message) => self.on_netlink(message),
            Input::Overrun => self.on_overrun(),
            Input::MalformedMessage => self.on_malformed_message(),
            Input::ForeignSender(port) => self.on_foreign_sender(*port),
            Input::RequestFailed(errno) => self.on_dump_ended(DumpResult::Failed(*errno)),
            Input::Tick | Input::RepliesRead => {}
            Input::StateFile(result) => self.on_state_file(*result),
            Input::MetricsFile(result) => self.on_metrics_file(*result),
            Input::Agent(outcome) => self.on_agent(*outcome),
            Input::Control(control) => self.on_control(*control),
            Input::Sent(address, sent) => self.on_sent(*address, *sent),
            Input::ClaimReceived(ifindex, claim) => self.on_claim(*ifindex, claim),
            Input::NoClaim => self.on_frame(),
            Input::Helper(helper, news) => self.on_helper(*helper, *news),
            Input::MountsChanged => self.namespace.mounts_changed(self.now),
            Input::NamespaceGone => self.on_namespace_gone(),
        }
    }

    fn on_netlink(&mut self, message: &Message) {
        match self.resync.on_message(message) {
            Meaning::Event => self.on_link_or_address(&message.body, None),
            Meaning::Listed(dump) => self.on_link_or_address(&message.body, Some(dump)),
            Meaning::DumpEnded(result) => self.on_dump_ended(result),
            Meaning::Nothing => {}
        }
    }

    /// Handles a change, or what a dump lists.
    fn on_link_or_address(&mut self, body: &Body, dump: Option<Dump>) {
        self.counters.events += 1;
        self.update_vip(&|vip| match body {
            Body::NewAddress(address) => vip.on_address(address),
            Body::DelAddress(address) => vip.on_address_gone(address),
            Body::NewLink(link) => vip.on_link(link),
            Body::DelLink(link) => vip.on_link_gone(link.ifindex),
            _ => {}
        });
        if let Body::NewAddress(address) = body
            && self.vip.is_unusable(address)
        {
            self.log_limited(&|count| LogEvent::DadFailed { count });
        }
        let watched = self.vip.ifindex();
        if let Body::NewLink(Link { ifindex, name: Some(name), .. }) = body
            && watched != Some(*ifindex)
        {
            self.on_other_link(*name, dump);
        }
        self.with_announcer(|announcer, now| match body {
            Body::NewAddress(address) => match dump {
                None => announcer.on_address(address, now),
                // A kernel that does not filter lists those of all links.
                Some(Dump::Others(ifindex)) if ifindex == address.ifindex => {
                    announcer.on_listed(address, now);
                }
                Some(_) => {}
            },
            Body::DelAddress(address) => announcer.on_address_gone(address),
            // keepalived itself announces what it puts on the watched interface.
            Body::NewLink(link) if watched != Some(link.ifindex) => announcer.on_link(link),
            Body::NewLink(link) | Body::DelLink(link) => announcer.on_link_gone(link.ifindex),
            Body::Ipv6Forwarding { ifindex, on } => announcer.on_forwarding(*ifindex, *on),
            Body::Done(_) | Body::Error(_) | Body::Other => {}
        });
    }

    fn on_control(&mut self, control: Control) {
        match control {
            Control::Exit(signal) => self.on_exit_requested(signal),
            Control::Reload => {
                self.ready_awaited |= self.manager.is_some();
                self.tell_manager(ManagerNotice::Reloading(self.now));
                self.push(Action::ReopenLog);
                self.push(Action::Log(LogEvent::Reloading));
                self.resync.request(DumpKind::Links);
                self.report_again = true;
            }
            Control::Status => {
                self.push(Action::LogStatus);
                self.request_metrics();
            }
        }
    }

    /// Updates what is known of the VIP, and follows its interface.
    fn update_vip(&mut self, update: &dyn Fn(&mut Vip)) {
        let place = |vip: &Vip| (vip.ifindex(), vip.is_interface_absent());
        let before = place(&self.vip);
        update(&mut self.vip);
        if place(&self.vip) == before {
            return;
        }
        if let Some(detector) = &mut self.detector {
            detector.on_interface_changed();
        }
        if let Some(ifindex) = self.vip.ifindex() {
            self.resync.request(DumpKind::Addresses);
            self.owner = None;
            self.push(Action::Log(LogEvent::InterfaceFound { ifindex }));
        } else {
            self.push(Action::Log(LogEvent::InterfaceMissing));
        }
    }

    /// What is awaited may have come long ago and wait to be read, if the process was stopped or a disk
    /// hung. So nothing is given up before everything has been read.
    fn expire_timeouts(&mut self, input: &Input) {
        if *input == Input::Tick && self.resync.is_overdue(self.now) {
            self.on_dump_ended(DumpResult::TimedOut);
        }
        if self.outbox.is_overdue(self.now) {
            match input {
                Input::RepliesRead => {
                    self.push(Action::HangUp);
                    self.on_agent_failure(Failure::TimedOut);
                }
                // There may be more.
                Input::Agent(_) => {}
                _ => self.push(Action::ReadReplies),
            }
        }
    }
}
