//! The monitor as a whole: inputs in, actions out.

mod announcing;
mod claims;
mod commands;
mod dumping;
mod reporting;

use super::announce::{AnnounceTiming, Announcer, Tables};
use super::backoff::Backoff;
use super::conntrack::Conntrack;
use super::namespace::NamespaceLook;
use super::outbox::Outbox;
use super::rate_limit::{RateLimit, RateLimitByKind};
use super::resync::Resync;
use super::vip::{Interface, Vip};
use super::{
    Action, Actions, Control, DumpKind, DumpResult, Duration, ExitReason, Failure, Input, Instant,
    LogEvent, MAX_ACTIONS, NamespaceCheck, Renotify, Status,
};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Body, Link};
use claims::Detector;

/// How long a request in flight may delay the end of the daemon.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// How long the daemon tries to tell that the namespace has gone.
const NAMESPACE_GONE_GRACE: Duration = Duration::from_secs(5);

/// What to watch.
#[derive(Debug)]
pub struct MonitorConfig<'a> {
    /// The interface that carries the VIP.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
    /// Differs between processes.
    pub seed: u32,
    /// Announce addresses like this.
    pub announce: Option<(AnnounceTiming, &'a mut Tables)>,
    /// Listen for other stations that claim the VIP.
    pub detect_split_brain: bool,
    /// When to tell an agent that was away again.
    pub renotify: Renotify,
    /// Run conntrackd's commands on each transition.
    pub sync_conntrack: bool,
    /// What tells that the network namespace may have been deleted.
    pub check_namespace: NamespaceCheck,
}

/// The state machine.
#[derive(Debug)]
pub struct Monitor<'a> {
    now: Instant,
    actions: Actions,
    vip: Vip,
    announcer: Option<Announcer<'a>>,
    /// Sees other stations that claim the VIP, if wanted.
    detector: Option<Detector>,
    /// Where addresses are heeded, once that has been said.
    heeding: Option<Interface>,
    resync: Resync,
    /// Which interface has the watched name for an alternative one, once that has been said.
    owner: Option<InterfaceName>,
    /// Report at the end of the dump even if nothing has changed.
    report_again: bool,
    ready: bool,
    /// The state file has yet to hold the last state reported.
    unwritten: bool,
    /// When to try the state file again, after a failure.
    rewrite_at: Option<Instant>,
    rewrite_backoff: Backoff,
    outbox: Outbox,
    conntrack: Option<Conntrack>,
    namespace: NamespaceLook,
    leaving: Option<Leaving>,
    status: Status,
    rate_limits: RateLimits,
}

/// The end that is near.
#[derive(Debug)]
struct Leaving {
    ending: ExitReason,
    /// At the latest.
    by: Instant,
    /// What the kernel had told when the end was asked for has been read.
    queue_read: bool,
}

#[derive(Debug, Default)]
struct RateLimits {
    overrun: RateLimit,
    unreadable: RateLimit,
    dump_failed: [RateLimit; DumpResult::KINDS],
    foreign_sender: RateLimit,
    not_announced: RateLimit,
    unannounced: RateLimit,
    conntrackd_restarted: RateLimit,
    unconfigured: RateLimit,
    dad_failed: RateLimit,
    ignored_links: RateLimit,
    not_written: RateLimit,
    not_notified: RateLimitByKind<Failure>,
}

impl<'a> Monitor<'a> {
    /// It begins to act at the first [`Input::QueueEmpty`].
    #[must_use]
    pub fn new(watch: MonitorConfig<'a>) -> Self {
        let seed = watch.seed;
        Self {
            now: Instant::ZERO,
            actions: Actions::new(),
            vip: Vip::new(watch.interface, watch.vip),
            announcer: watch.announce.map(|(tempo, tables)| Announcer::new(tempo, tables)),
            detector: watch.detect_split_brain.then(Detector::default),
            heeding: None,
            resync: Resync::new(seed),
            owner: None,
            report_again: false,
            ready: false,
            unwritten: false,
            rewrite_at: None,
            rewrite_backoff: Backoff::new(seed),
            outbox: Outbox::new(seed, watch.renotify),
            conntrack: watch.sync_conntrack.then(Conntrack::new),
            namespace: NamespaceLook::new(watch.check_namespace),
            leaving: None,
            status: Status::default(),
            rate_limits: RateLimits::default(),
        }
    }

    /// Takes what happened at `now`, which never lies before an earlier one, and tells what to do.
    pub fn on(&mut self, input: &Input, now: Instant) -> Actions {
        self.now = now;
        match input {
            Input::Event(body) => self.on_kernel(body, false),
            Input::Listed(body) => self.on_kernel(body, true),
            Input::DumpEnded(end) => self.on_dump_ended(*end),
            Input::Overrun => self.on_overrun(),
            Input::Unreadable => self.on_unreadable(),
            Input::ForeignSender(port) => self.on_foreign_sender(*port),
            Input::QueueEmpty | Input::RepliesRead => {}
            Input::StateFile(result) => self.on_state_file(*result),
            Input::Agent(outcome) => self.on_agent(*outcome),
            Input::Control(request) => self.on_request(*request),
            Input::Sent(address, sent) => self.on_sent(*address, *sent),
            Input::Claimed(ifindex, claim) => self.on_claim(*ifindex, claim),
            Input::NoClaim => self.on_frame(),
            Input::CommandEnded(end) => self.on_command_ended(*end),
            Input::HelperRestarted => self.on_helper_restarted(),
            Input::HelperGone => self.on_conntrackd_gone(),
            Input::MountsChanged => self.namespace.mounts_changed(self.now),
            Input::NamespaceGone => self.on_namespace_gone(),
        }
        self.expire_timeouts(input);
        self.heed();
        let queue_is_empty = *input == Input::QueueEmpty;
        self.begin_dump(queue_is_empty);
        self.report();
        self.notify();
        self.run_command();
        self.listen();
        self.read_frames_again();
        self.follow_role();
        if queue_is_empty {
            self.report_claim();
            // One frame each time round, so that nothing else has to wait for them.
            self.announce();
        }
        self.check_namespace();
        self.leave(queue_is_empty);
        core::mem::take(&mut self.actions)
    }

    /// When to look at the netlink queue again, be there something in it or not. None: not before
    /// something happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        // As long as the state is in doubt no frame goes out, and the dump has a deadline of its own.
        let announcer = self.announcer.as_ref().filter(|_| !self.resync.is_state_in_doubt());
        let announce = announcer.and_then(Announcer::deadline);
        let check = self.namespace.deadline();
        let leaving = self.leaving.as_ref();
        let leaving = leaving.map(|leaving| if leaving.queue_read { leaving.by } else { self.now });
        let (resync, outbox) = (self.resync.deadline(), self.outbox.deadline());
        let settled = self.resync.is_settled();
        let claims = self.detector.as_ref().and_then(|detector| detector.deadline(settled));
        let commands = self.conntrack.as_ref().and_then(Conntrack::deadline);
        let commands = commands.filter(|_| !self.is_writing());
        let all = [resync, outbox, self.rewrite_at, announce, claims, commands, check, leaving];
        all.into_iter().flatten().min()
    }

    /// What there is to be shown on request.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            ifindex: self.vip.ifindex(),
            undelivered: self.outbox.undelivered(),
            ..self.status
        }
    }

    fn push(&mut self, action: Action) {
        let pushed = self.actions.push(action);
        debug_assert!(pushed.is_ok(), "one input brings about at most {MAX_ACTIONS} actions");
    }

    fn on_kernel(&mut self, body: &Body, listed: bool) {
        count(&mut self.status.events);
        self.update_vip(|vip| match body {
            Body::NewAddress(address) => vip.on_address(address),
            Body::DelAddress(address) => vip.on_address_gone(address),
            Body::NewLink(link) => vip.on_link(link),
            Body::DelLink(link) => vip.on_link_gone(link.ifindex),
            _ => {}
        });
        if let Body::NewAddress(address) = body
            && self.vip.is_unusable(address)
            && let Some(count) = self.rate_limits.dad_failed.should_log(self.now)
        {
            self.push(Action::Log(LogEvent::DadFailed { count }));
        }
        if let Some(detector) = &mut self.detector {
            detector.on_kernel(body);
        }
        let watched = self.vip.ifindex();
        if let Body::NewLink(Link { ifindex, name: Some(name), .. }) = body
            && watched != Some(*ifindex)
        {
            self.on_other_link(*name, listed);
        }
        self.with_announcer(|announcer, now| match body {
            Body::NewAddress(address) if listed => announcer.on_listed(address, now),
            Body::NewAddress(address) => announcer.on_address(address, now),
            Body::DelAddress(address) => announcer.on_address_gone(address),
            // keepalived itself announces what it puts on the watched interface.
            Body::NewLink(link) if watched != Some(link.ifindex) => announcer.on_link(link),
            Body::NewLink(link) | Body::DelLink(link) => announcer.on_link_gone(link.ifindex),
            Body::Ipv6Forwarding { ifindex, on } => announcer.on_forwarding(*ifindex, *on),
            Body::Done(_) | Body::Error(_) | Body::Other => {}
        });
    }

    fn on_request(&mut self, request: Control) {
        match request {
            Control::Leave => {
                // To be asked again, or for another reason before, is no reason to stay for longer.
                let by = self.now + SHUTDOWN_GRACE;
                let (by, queue_read) = self
                    .leaving
                    .as_ref()
                    .map_or((by, false), |earlier| (earlier.by.min(by), earlier.queue_read));
                self.leaving = Some(Leaving { ending: ExitReason::Asked, by, queue_read });
            }
            Control::Reload => {
                self.push(Action::ReopenLog);
                self.push(Action::Log(LogEvent::Reloading));
                self.resync.want(DumpKind::Links);
                self.report_again = true;
            }
            Control::Status => self.push(Action::LogStatus),
        }
    }

    /// Lets the VIP take something in, and follows its interface.
    fn update_vip(&mut self, update: impl FnOnce(&mut Vip)) {
        let before = self.vip.interface();
        update(&mut self.vip);
        let after = self.vip.interface();
        if after == before {
            return;
        }
        if let Some(detector) = &mut self.detector {
            detector.on_interface_changed();
        }
        match after {
            Interface::At(ifindex) => {
                self.resync.want(DumpKind::Addresses);
                self.owner = None;
                self.push(Action::Log(LogEvent::InterfaceFound { ifindex }));
            }
            Interface::Absent => self.push(Action::Log(LogEvent::InterfaceMissing)),
            Interface::Unknown => {}
        }
    }

    /// What is awaited may have come long ago and wait to be read, if the process was stopped or a disk
    /// hung. So nothing is given up before everything has been read.
    fn expire_timeouts(&mut self, input: &Input) {
        if *input == Input::QueueEmpty && self.resync.is_overdue(self.now) {
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

    fn check_namespace(&mut self) {
        if self.namespace.begin(self.now) {
            self.push(Action::CheckNamespace);
        }
    }

    fn on_namespace_gone(&mut self) {
        if self.leaving.is_none() {
            let by = self.now + NAMESPACE_GONE_GRACE;
            self.leaving =
                Some(Leaving { ending: ExitReason::NamespaceGone, by, queue_read: true });
            self.namespace = NamespaceLook::new(NamespaceCheck::Never);
            self.vip.lose();
            self.push(Action::Log(LogEvent::NamespaceGone));
        }
    }

    fn leave(&mut self, queue_is_empty: bool) {
        let Some(leaving) = &mut self.leaving else { return };
        leaving.queue_read |= queue_is_empty;
        let Leaving { ending, by, queue_read } = *leaving;
        let said = match ending {
            // What was so when the end was asked for is reported. But whoever asks for it does not wait
            // for a disk that is full or an agent that is not there.
            ExitReason::Asked => {
                queue_read && !self.resync.is_state_in_doubt() && !self.is_writing()
            }
            // This is news that should arrive.
            ExitReason::NamespaceGone => !self.unwritten && self.outbox.undelivered().is_none(),
        };
        if self.now >= by || (said && !self.outbox.is_connected()) {
            self.push(Action::Exit(ending));
        }
    }
}

fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}
