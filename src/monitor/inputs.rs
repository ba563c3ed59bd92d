//! The inputs that concern several features: events, the answers to questions, signals, helpers.

use super::announce::Announcer;
use super::machine::Monitor;
use super::namespace::NamespaceSchedule;
use super::resync::Subject;
use super::split_brain::Detector;
use super::vip::{Scope, Vip};
use super::{
    Action, Answer, CommandResult, Control, ExitReason, HelperKind, HelperNews, Instant,
    LimitedEvent, LogEvent, NamespaceCheck, Question, Source,
};
use crate::errno::Errno;
use crate::wire::rtnl::{Address, Body};

impl Monitor<'_> {
    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        if self.resync.handle_queue_empty(now) {
            self.vip.forget_links();
        }
        self.settle(now);
        self.exit.handle_queue_empty();
        self.manager.iter_mut().for_each(|manager| manager.handle_queue_empty(now));
        self.announcer.iter_mut().for_each(|a| a.handle_queue_empty(&mut self.journal, now));
        self.metrics.iter_mut().for_each(|metrics| metrics.handle_queue_empty(now));
    }

    pub(super) fn handle_event(&mut self, body: &Body, now: Instant) {
        self.resync.handle_datagram();
        self.journal.counters.events += 1;
        match body {
            Body::NewAddress(address) => self.handle_address(address, now),
            Body::DelAddress(address) => {
                let may_have_room = self.vip.handle_address_gone(address);
                if may_have_room {
                    self.resync.request_all(now);
                }
            }
            Body::NewLink(link) => {
                let is_new = self.update_interface(|vip| vip.handle_link(link));
                if is_new || self.vip.take_detection_restart() {
                    self.resync.request_watched();
                }
            }
            Body::DelLink(link) => {
                self.update_interface(|vip| vip.handle_link_gone(link.ifindex));
            }
            _ => {}
        }
        self.announcer.iter_mut().for_each(|a| a.handle_event(body, &mut self.journal, now));
        // After a loss, the end of a link that an event shows may be among what is lost. All links are listed then.
        if let Some(detector) = self.detector.as_mut().filter(|_| self.resync.is_readable) {
            detector.handle_event(body);
        }
        // The queue may never be empty in a storm.
        self.settle(now);
    }

    /// Handles a new or changed address.
    fn handle_address(&mut self, address: &Address, now: Instant) {
        self.vip.handle_address(address);
        if !self.vip.is_vip(address) {
            return;
        }
        if self.vip.has_duplicate() {
            self.journal.log_limited(LimitedEvent::DadFailed, now);
        } else {
            self.journal.end_failures(|event| matches!(event, LimitedEvent::DadFailed));
        }
    }

    /// Updates the watched interface, and notifies the features if it has appeared, disappeared or got another index. Returns
    /// whether there is a new one, whose addresses are unknown.
    fn update_interface(&mut self, update: impl FnOnce(&mut Vip)) -> bool {
        let presence = |vip: &Vip| (vip.ifindex(), vip.is_interface_absent());
        let before = presence(&self.vip);
        update(&mut self.vip);
        if presence(&self.vip) == before {
            return false;
        }
        let found = self.vip.ifindex();
        self.detector.iter_mut().for_each(Detector::handle_interface_change);
        self.announcer.iter_mut().for_each(|announcer| announcer.handle_watched(found));
        self.journal.log(match found {
            Some(ifindex) => LogEvent::InterfaceFound { ifindex },
            None => LogEvent::InterfaceMissing,
        });
        found.is_some()
    }

    /// Returns the next question, if one is due.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Action> {
        if let Some(announcer) = &mut self.announcer
            && announcer.start_round(now)
        {
            self.resync.request_lists(announcer.links_missing, now);
        }
        let place = self.vip.unknown_link();
        let link = self.wanted_link();
        let subject = self.resync.next_subject(place, link, self.vip.is_answered(), now)?;
        self.begin(subject);
        // A list before each probe is no news.
        self.journal.counters.dumps += u64::from(!matches!(subject, Subject::Prober(_)));
        self.resync.ask(subject);
        Some(Action::Ask(subject.question()))
    }

    /// Returns the next link whose addresses have to be listed alone.
    pub(super) fn wanted_link(&self) -> Option<u32> {
        let link = self.announcer.as_ref()?.wanted_link();
        link.filter(|link| self.resync.all_for_link != Some(*link))
    }

    /// Prepares for the answer about a subject.
    fn begin(&mut self, subject: Subject) {
        match subject {
            Subject::Watched => self.vip.begin(Scope::Watched),
            Subject::Links => self.announcer.iter_mut().for_each(Announcer::begin_links),
            Subject::Link(_) => self.announcer.iter_mut().for_each(Announcer::begin_addresses),
            Subject::All => {
                self.announcer.iter_mut().for_each(Announcer::begin_addresses);
                self.vip.begin(Scope::All);
            }
            Subject::WatchedAddresses(_) | Subject::Place(_) | Subject::Prober(_) => {}
        }
    }

    /// Handles an entry of the answer in progress.
    pub(super) fn handle_entry(&mut self, body: &Body, now: Instant) {
        let Some(subject) = self.resync.asked else { return };
        self.journal.counters.events += 1;
        if let Some(detector) = self.detector.as_mut().filter(|_| subject.is_for_prober()) {
            detector.handle_listed(body, &self.vip);
        }
        match (subject, body) {
            (Subject::Watched, Body::NewLink(link)) if self.vip.has_name(link.name) => {
                self.vip.handle_link_entry(link);
            }
            (Subject::Watched, Body::NewLink(link)) => {
                if let Some(owner) = link.name {
                    self.journal.log_limited(LimitedEvent::AlternativeName { owner }, now);
                }
            }
            (Subject::Place(_), Body::NewLink(link)) => self.vip.handle_place_link(link),
            (Subject::Links, _) => {
                self.announcer.iter_mut().for_each(|announcer| announcer.handle_link_entry(body));
            }
            (Subject::WatchedAddresses(_), Body::NewAddress(address)) => {
                self.vip.handle_address_entry(address);
            }
            (Subject::Link(ifindex), Body::NewAddress(address)) => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.handle_address_entry(address, Some(ifindex), &mut self.journal, now);
                }
            }
            (Subject::All, Body::NewAddress(address)) => {
                self.vip.handle_address_entry(address);
                if let Some(announcer) = &mut self.announcer {
                    let is_listing = announcer.addresses_missing;
                    let only = self.resync.all_for_link.filter(|_| !is_listing);
                    announcer.handle_address_entry(address, only, &mut self.journal, now);
                }
            }
            _ => {}
        }
    }

    /// Handles the end of the answer in progress.
    pub(super) fn handle_answered(&mut self, answer: Answer, now: Instant) {
        let Some(subject) = self.resync.end() else { return };
        let question = subject.question();
        // An answer about one link that comes in parts may always have gaps. All addresses are listed after it.
        let is_alone = matches!(question, Question::Addresses { only: Some(_) });
        let is_expected = answer == Answer::Interrupted && is_alone;
        if answer != Answer::Complete && !is_expected {
            self.journal.counters.dump_failures += 1;
            self.journal.log_limited(LimitedEvent::QuestionFailed { question, answer }, now);
        } else if answer == Answer::Complete && (subject.has_places() || subject == Subject::Links)
        {
            // In a storm of changes, complete and interrupted answers follow each other.
            self.journal.end_failures(|event| {
                matches!(event, LimitedEvent::QuestionFailed { answer: Answer::Failed(_), .. })
            });
        }
        let journal = &mut self.journal;
        match (subject, answer) {
            (_, Answer::Failed(_)) if subject.has_places() => self.vip.discard(),
            (Subject::Watched, _) => {
                if self.vip.handle_interface_answered() {
                    self.resync.then_addresses_of = self.vip.next_ifindex();
                }
            }
            (Subject::WatchedAddresses(_), _) => self.vip.handle_addresses_answered(answer),
            (Subject::Place(ifindex), Answer::Complete) => {
                if self.vip.unknown_link() == Some(ifindex) {
                    self.vip.handle_place_link_gone(ifindex);
                }
            }
            (Subject::Place(_) | Subject::Prober(_), _) => {}
            (Subject::Links, _) => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.end_links(answer, journal, now);
                    if announcer.addresses_missing {
                        self.resync.request(Question::Addresses { only: None }, now);
                    }
                }
            }
            (Subject::Link(ifindex), _) => {
                self.announcer.iter_mut().for_each(|a| a.end_link(ifindex, answer));
            }
            (Subject::All, _) => {
                self.vip.handle_addresses_answered(answer);
                if let Some(announcer) = &mut self.announcer {
                    announcer.end_addresses(answer, now);
                    if let Some(ifindex) = self.resync.all_for_link {
                        announcer.end_link(ifindex, answer);
                    }
                }
            }
        }
        // Each entry of a link's addresses is one to ask from.
        let is_list = subject.is_for_prober() && (answer == Answer::Complete || is_expected);
        if let Some(detector) = self.detector.as_mut().filter(|_| is_list) {
            detector.handle_list_end(question);
        }
        self.resync.retry(subject, answer, now);
    }

    /// Puts the answers about the VIP in use, once every event has been read that they may include.
    fn settle(&mut self, now: Instant) {
        if !self.vip.is_answered() || !self.resync.has_caught_up() {
            return;
        }
        let mut settled = None;
        self.update_interface(|vip| settled = vip.settle());
        if let Some((Scope::All, Answer::Complete)) = settled {
            self.resync.all_for_state = false;
        }
        if let Some((Scope::Watched, _)) = settled {
            self.detector.iter_mut().for_each(Detector::handle_interface_change);
            if self.vip.has_duplicate() {
                self.journal.log_limited(LimitedEvent::DadFailed, now);
            }
        }
    }

    pub(super) fn handle_overrun(&mut self, now: Instant) {
        self.journal.counters.overruns += 1;
        self.journal.log_limited(LimitedEvent::Overrun, now);
        self.handle_loss(now);
        self.resync.request_watched();
    }

    /// Handles a message that could not be read. A message about another interface does not concern the VIP.
    pub(super) fn handle_malformed_message(&mut self, ifindex: Option<u32>, now: Instant) {
        self.journal.counters.malformed += 1;
        self.journal.log_limited(LimitedEvent::MalformedMessage { ifindex }, now);
        self.resync.handle_datagram();
        self.announcer.iter_mut().for_each(Announcer::forget_links);
        self.detector.iter_mut().for_each(Detector::handle_loss);
        match (ifindex, self.vip.ifindex()) {
            (Some(ifindex), Some(watched)) if ifindex != watched => return,
            // The watched interface is absent, and the message may be about it.
            (Some(_), None) => {}
            _ => self.handle_loss(now),
        }
        self.resync.request_watched_later(now);
    }

    /// Handles a loss of events: answers that have come before are outdated. Everything but the watched interface is asked
    /// for after a pause.
    fn handle_loss(&mut self, now: Instant) {
        self.vip.discard();
        self.resync.handle_loss();
        self.detector.iter_mut().for_each(Detector::handle_loss);
        self.resync.request_all(now);
        if self.announcer.as_mut().is_some_and(Announcer::handle_loss) {
            self.resync.request_links_later(now);
        }
    }

    pub(super) fn handle_foreign_sender(&mut self, port: u32, now: Instant) {
        self.resync.handle_datagram();
        self.journal.counters.foreign += 1;
        self.journal.log_limited(LimitedEvent::ForeignSender { port }, now);
    }

    pub(super) fn handle_control(&mut self, control: Control, now: Instant) {
        match control {
            Control::Exit(signal) => self.handle_exit(ExitReason::Signal(signal), now),
            Control::Reload => {
                self.journal.post(Action::ReopenLog);
                self.journal.log(LogEvent::Reloading);
                if let Some(manager) = &mut self.manager {
                    manager.handle_reload(now);
                    self.ready_pending = true;
                }
                self.resync.request_watched();
                self.resync.request_all(now);
                self.reload_pending = true;
            }
            Control::ReopenLog => self.journal.post(Action::ReopenLog),
            Control::Status => {
                self.journal.post(Action::LogStatus);
                // The report of the first state requests a write itself.
                if let (Some(metrics), Some(_)) = (&mut self.metrics, self.reported) {
                    metrics.request();
                }
            }
        }
    }

    /// Handles the failure of an action, which is tried again. All others have a result of their own.
    pub(super) fn handle_failed(&mut self, action: &Action, errno: Errno, now: Instant) {
        let not_started = HelperNews::Ended(CommandResult::NotStarted(errno));
        match action {
            Action::Sync(_) | Action::CheckConntrackd => {
                self.handle_helper(HelperKind::Conntrackd, not_started, now);
            }
            Action::RunHook { .. } => self.handle_helper(HelperKind::Hook, not_started, now),
            Action::WatchClaims { .. } | Action::ReadFrames(_) => {
                if let Some(detector) = &mut self.detector {
                    detector.handle_socket_failed(action, errno, &mut self.journal, now);
                }
            }
            Action::CheckNamespace => {
                self.journal.log_limited(LimitedEvent::NamespaceUnseen { errno }, now);
                self.namespace.handle_failed(now);
            }
            // Only a feature that is off could fail so, and that wants nothing.
            Action::Ask(_)
            | Action::SendFrame(_)
            | Action::SendProbe(_)
            | Action::WriteState(_)
            | Action::PrepareState { .. }
            | Action::WriteMetrics
            | Action::Notify(_)
            | Action::HangUp
            | Action::SignalReady
            | Action::NotifyManager(_)
            | Action::Log(_)
            | Action::LogStatus
            | Action::ReopenLog
            | Action::CheckKeepalived
            | Action::CheckFiles
            | Action::Exit(_) => {}
        }
    }

    pub(super) fn handle_helper(&mut self, helper: HelperKind, news: HelperNews, now: Instant) {
        let journal = &mut self.journal;
        match (news, helper) {
            (HelperNews::Ended(end), HelperKind::Conntrackd) => {
                self.conntrack.iter_mut().for_each(|sync| sync.handle_end(end, journal, now));
            }
            (HelperNews::Ended(end), HelperKind::Hook) => {
                self.hook.iter_mut().for_each(|hook| hook.handle_end(end, journal, now));
            }
            (HelperNews::Gone, _) => {
                let is_first = match helper {
                    HelperKind::Conntrackd => self.conntrack.take().is_some(),
                    HelperKind::Hook => self.hook.take().is_some(),
                };
                if is_first {
                    journal.log(LogEvent::HelperGone(helper));
                    self.handle_exit(ExitReason::HelperGone(helper), now);
                }
            }
        }
    }

    pub(super) fn handle_namespace_gone(&mut self, now: Instant) {
        if matches!(
            self.exit.reason(),
            None | Some(ExitReason::HelperGone(_) | ExitReason::SourceFailed(_))
        ) {
            self.namespace = NamespaceSchedule::new(NamespaceCheck::Never);
            self.vip.handle_namespace_gone();
            self.journal.log(LogEvent::NamespaceGone);
            self.handle_exit(ExitReason::NamespaceGone, now);
        }
    }

    /// Handles the end of a source of inputs, which each turn of the loop reports again.
    pub(super) fn handle_source_failed(&mut self, source: Source, errno: Errno, now: Instant) {
        if !self.exit.is_pending() {
            self.journal.log(LogEvent::SourceFailed(source, errno));
        }
        self.handle_exit(ExitReason::SourceFailed(source), now);
    }

    pub(super) fn handle_exit(&mut self, reason: ExitReason, now: Instant) {
        let is_first = self.exit.handle(reason, now);
        if let Some(manager) = self.manager.as_mut().filter(|_| is_first) {
            manager.handle_exit_begun();
        }
        if let (Some(hook), ExitReason::Signal(_) | ExitReason::NamespaceGone) =
            (&mut self.hook, reason)
        {
            hook.handle_exit(now);
        }
    }
}
