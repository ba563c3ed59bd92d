//! What happens: each input changes what is known, and nothing else.

use super::machine::Monitor;
use super::namespace::NamespaceLook;
use super::resync::{DumpKind, MessageClass};
use super::vip::Vip;
use super::{
    Action, Control, Dump, DumpResult, ExitReason, HelperKind, HelperNews, Input, Instant,
    LogEvent, NamespaceCheck,
};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{Body, Link, Message};

impl Monitor<'_> {
    /// Handles what happened at `now`. [`Monitor::next_action`] tells what is to be done about it.
    pub fn handle(&mut self, input: &Input, now: Instant) {
        let journal = &mut self.journal;
        match input {
            Input::QueueEmpty => self.handle_queue_empty(now),
            Input::Netlink(message) => self.handle_message(message, now),
            Input::Overrun => self.handle_overrun(now),
            Input::MalformedMessage => self.handle_malformed_message(now),
            Input::ForeignSender(port) => self.handle_foreign_sender(*port, now),
            Input::RequestFailed(errno) => self.handle_dump_end(DumpResult::Failed(*errno), now),
            Input::StateFile(result) => self.state_file.handle_write(*result, journal, now),
            Input::MetricsFile(result) => {
                if let Some(metrics) = &mut self.metrics {
                    metrics.handle_write(*result, journal, now);
                }
            }
            Input::Agent(outcome) => {
                if let Some(outbox) = &mut self.outbox {
                    outbox.handle_outcome(*outcome, journal, now);
                }
            }
            Input::Control(control) => self.handle_control(*control, now),
            Input::Sent(address, result) => {
                self.resync.expect_more();
                if let Some(announcer) = &mut self.announcer {
                    announcer.handle_sent(*address, *result, journal, now);
                }
            }
            Input::Probed(result) => {
                self.resync.expect_more();
                if let Err(errno) = *result {
                    journal.log_limited(|count| LogEvent::NotProbed { errno, count }, now);
                }
            }
            Input::ClaimReceived(ifindex, claim) => {
                if let Some(detector) = &mut self.detector {
                    detector.handle_frame(now);
                    detector.handle_claim(*ifindex, claim, &self.vip, journal, now);
                }
            }
            Input::NoClaim => {
                if let Some(detector) = &mut self.detector {
                    detector.handle_frame(now);
                }
            }
            Input::Helper(helper, news) => self.handle_helper(*helper, *news, now),
            Input::MountsChanged => self.namespace.handle_mounts_changed(now),
            Input::NamespaceGone => self.handle_namespace_gone(now),
        }
    }

    fn handle_queue_empty(&mut self, now: Instant) {
        self.resync.handle_queue_empty(now);
        self.exit.handle_queue_empty();
        if let Some(manager) = &mut self.manager {
            manager.handle_queue_empty(now);
        }
        if let (Some(metrics), true) = (&mut self.metrics, self.reported.is_some()) {
            metrics.handle_queue_empty(&self.journal.counters, now);
        }
        if self.resync.is_overdue(now) {
            self.handle_dump_end(DumpResult::TimedOut, now);
        }
    }

    fn handle_message(&mut self, message: &Message, now: Instant) {
        self.resync.expect_more();
        match self.resync.classify(message) {
            MessageClass::Event => {
                self.handle_link_or_address(&message.body, None, now);
                self.note_overtaken(&message.body);
            }
            MessageClass::Listed(Dump::Everywhere) => self.handle_listed_anywhere(&message.body),
            // It may have been otherwise before. Whatever has come since has an event.
            MessageClass::Listed(_) if self.resync.is_overtaken() => {}
            MessageClass::Listed(dump) => {
                self.handle_link_or_address(&message.body, Some(dump), now);
            }
            MessageClass::DumpEnded(result) => self.handle_dump_end(result, now),
            MessageClass::Nothing => {}
        }
    }

    /// Handles an event of something that the dump under way may list as it was before. A link of another name may
    /// have had ours, and nobody need have seen that: events may have been lost before the dump.
    fn note_overtaken(&mut self, body: &Body) {
        let vip = &self.vip;
        self.resync.note_overtaken(|dump| match (body, dump) {
            (Body::NewLink(_) | Body::DelLink(_) | Body::Ipv6Forwarding { .. }, Dump::Links) => {
                true
            }
            (Body::NewAddress(address), Dump::Addresses(_)) => vip.is_unusable(address),
            (Body::DelAddress(address), Dump::Addresses(_)) => vip.is_vip(address),
            (Body::DelAddress(address), Dump::Others(ifindex)) => address.ifindex == ifindex,
            _ => false,
        });
    }

    /// It may have been deleted, and with it the VIP, of which this dump is not to tell.
    fn handle_listed_anywhere(&mut self, body: &Body) {
        if let Body::NewAddress(address) = body
            && self.vip.is_misplaced(address)
        {
            self.elsewhere.handle_listed(address);
        }
    }

    fn handle_link_or_address(&mut self, body: &Body, dump: Option<Dump>, now: Instant) {
        self.journal.counters.events += 1;
        if let Body::NewAddress(address) | Body::DelAddress(address) = body {
            self.elsewhere.search_due |= dump.is_none() && self.vip.is_misplaced(address);
        }
        if self.vip.may_have_more(body) {
            self.resync.request(DumpKind::Addresses);
        }
        self.update_vip(|vip| match body {
            Body::NewAddress(address) => vip.handle_address(address),
            Body::DelAddress(address) => vip.handle_address_gone(address),
            Body::NewLink(link) => vip.handle_link(link),
            Body::DelLink(link) => vip.handle_link_gone(link.ifindex),
            _ => {}
        });
        if let Body::NewAddress(address) = body
            && self.vip.is_unusable(address)
        {
            self.journal.log_limited(|count| LogEvent::DadFailed { count }, now);
        }
        if let Body::NewLink(Link { ifindex, name: Some(name), .. }) = body
            && self.vip.ifindex() != Some(*ifindex)
        {
            self.handle_other_link(*name, dump);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_link_or_address(body, dump, &mut self.journal, now);
        }
    }

    fn handle_other_link(&mut self, name: InterfaceName, dump: Option<Dump>) {
        if self.alt_name_owner.is_some() {
            // Nothing has to be said, nor looked for, again.
        } else if dump == Some(Dump::Interface) {
            self.alt_name_owner = Some(name);
            self.journal.log(LogEvent::AlternativeName { owner: name });
        } else if dump.is_none() && self.vip.is_interface_absent() {
            // It may have got the watched name for an alternative one, of which there may be hundreds to
            // be read through; so the kernel is asked.
            self.resync.request(DumpKind::Interface);
        }
    }

    /// Updates what is known of the VIP, and follows its interface.
    fn update_vip(&mut self, update: impl FnOnce(&mut Vip)) {
        let place = |vip: &Vip| (vip.ifindex(), vip.is_interface_absent());
        let before = place(&self.vip);
        update(&mut self.vip);
        if place(&self.vip) == before {
            return;
        }
        // What was as told may not be so any more.
        self.elsewhere.search_due = true;
        if let Some(detector) = &mut self.detector {
            detector.handle_interface_change();
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_watched(self.vip.ifindex());
        }
        if let Some(ifindex) = self.vip.ifindex() {
            self.resync.request(DumpKind::Addresses);
            self.alt_name_owner = None;
            self.journal.log(LogEvent::InterfaceFound { ifindex });
        } else {
            self.journal.log(LogEvent::InterfaceMissing);
        }
    }

    fn handle_dump_end(&mut self, result: DumpResult, now: Instant) {
        let is_overtaken = self.resync.is_overtaken();
        let Some(dump) = self.resync.end(result, now) else { return };
        let is_complete = result == DumpResult::Complete;
        if let (Dump::Others(ifindex), Some(announcer)) = (dump, &mut self.announcer) {
            announcer.listing_end(ifindex, is_complete && !is_overtaken);
        }
        if dump == Dump::Everywhere
            && let Some(place) = self.elsewhere.search_end(is_complete)
        {
            self.journal.log(LogEvent::Misplaced(place));
        }
        if !is_complete {
            self.journal.counters.dump_failures += 1;
            self.journal.log_limited(|count| LogEvent::DumpFailed { dump, result, count }, now);
            return;
        }
        match dump {
            // It is asked for again.
            _ if is_overtaken => {}
            Dump::Links => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.links_end();
                }
                if let Some(detector) = &mut self.detector {
                    detector.handle_interface_change();
                }
                // Not to be shown is no proof.
                self.resync.request(DumpKind::Interface);
            }
            Dump::Interface => {
                self.update_vip(Vip::interface_end);
                self.resync.request(DumpKind::Addresses);
            }
            Dump::Addresses(ifindex) => self.vip.addresses_end(ifindex),
            Dump::Others(_) | Dump::Everywhere => {}
        }
    }

    fn handle_overrun(&mut self, now: Instant) {
        self.resync.request(DumpKind::Links);
        self.journal.counters.overruns += 1;
        self.journal.log_limited(|count| LogEvent::Overrun { count }, now);
        self.handle_loss();
    }

    fn handle_malformed_message(&mut self, now: Instant) {
        self.resync.mark_incomplete();
        self.journal.counters.malformed += 1;
        self.journal.log_limited(|count| LogEvent::MalformedMessage { count }, now);
        self.handle_loss();
    }

    /// Events were lost, and there may be more to be read.
    fn handle_loss(&mut self) {
        self.resync.expect_more();
        if let Some(announcer) = &mut self.announcer {
            announcer.handle_loss();
        }
    }

    fn handle_foreign_sender(&mut self, port: u32, now: Instant) {
        self.resync.expect_more();
        self.journal.counters.foreign += 1;
        self.journal.log_limited(|count| LogEvent::ForeignSender { port, count }, now);
    }

    fn handle_control(&mut self, control: Control, now: Instant) {
        match control {
            Control::Exit(signal) => {
                self.handle_exit(ExitReason::Signal(signal), now);
            }
            Control::Reload => {
                self.journal.post(Action::ReopenLog);
                self.journal.log(LogEvent::Reloading);
                if let Some(manager) = &mut self.manager {
                    manager.handle_reload(now);
                }
                self.state_file.handle_reload(self.manager.is_some());
                self.resync.request(DumpKind::Links);
                self.report_again = true;
            }
            Control::Status => {
                self.journal.post(Action::LogStatus);
                if let Some(metrics) = &mut self.metrics {
                    metrics.request();
                }
            }
        }
    }

    fn handle_helper(&mut self, helper: HelperKind, news: HelperNews, now: Instant) {
        let journal = &mut self.journal;
        match (news, helper) {
            (HelperNews::Ended(end), HelperKind::Conntrackd) => {
                if let Some(conntrack) = &mut self.conntrack {
                    conntrack.handle_end(end, journal, now);
                }
            }
            (HelperNews::Ended(end), HelperKind::Hook) => {
                if let Some(hook) = &mut self.hook {
                    hook.handle_end(end, journal, now);
                }
            }
            (HelperNews::Gone, _) => {
                let is_news = match helper {
                    HelperKind::Conntrackd => self.conntrack.take().is_some(),
                    HelperKind::Hook => self.hook.take().is_some(),
                };
                if is_news {
                    journal.log(LogEvent::HelperGone(helper));
                    self.handle_exit(ExitReason::HelperGone(helper), now);
                }
            }
        }
    }

    fn handle_namespace_gone(&mut self, now: Instant) {
        if matches!(self.exit.reason(), None | Some(ExitReason::HelperGone(_))) {
            self.namespace = NamespaceLook::new(NamespaceCheck::Never);
            self.vip.mark_unreachable();
            self.journal.log(LogEvent::NamespaceGone);
            self.handle_exit(ExitReason::NamespaceGone, now);
        }
    }

    fn handle_exit(&mut self, reason: ExitReason, now: Instant) {
        let is_first = self.exit.handle(reason, now);
        if let Some(manager) = self.manager.as_mut().filter(|_| is_first) {
            manager.handle_exit_begun();
        }
    }
}
