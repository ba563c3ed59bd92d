//! Questions to the kernel: asking, and the entries and ends of their answers.

use super::announce::Announcer;
use super::machine::Monitor;
use super::resync::Subject;
use super::split_brain::Detector;
use super::vip::Scope;
use super::{Action, Instant, LimitedEvent};
use crate::errno::Errno;
use crate::wire::rtnl::Body;

/// A question about links or addresses. The kernel answers at once, with entries and an [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The link with the watched name, or with that as an alternative name.
    Interface,
    /// The link with this index.
    Link(u32),
    /// The addresses of the interface with this index, or of all.
    Addresses {
        /// The index. Kernels before 4.20 list all addresses.
        only: Option<u32>,
    },
    /// All links.
    Links,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The entries are all that there was.
    Complete,
    /// Entries may be missing: the kernel's tables changed meanwhile, or may have, as one interface has many addresses.
    Interrupted,
    /// The question could not be sent, or the kernel refused it.
    Failed(Errno),
}

impl Monitor<'_> {
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
        // An answer about one link with many addresses may always have gaps. All addresses are listed after it.
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
    pub(super) fn settle(&mut self, now: Instant) {
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
}
