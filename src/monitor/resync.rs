//! Resynchronisation: which question to ask the kernel next, and when.
//!
//! The watched interface is asked for first: by its name, and then for its addresses alone, in one part. The state is known
//! once the events that were queued meanwhile have been read. Only then the rest is asked for: all addresses, which may
//! take many parts, and for announcements all links.
//!
//! A question that fails, or whose answer has gaps, is asked again after a wait.

use super::backoff::Backoff;
use super::{Answer, Duration, Instant, Question};

/// How long actions may rely on an empty queue: events are read again at least this often.
const EMPTY_LASTS: Duration = Duration::from_micros(500);

/// A subject of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The watched interface.
    Watched,
    /// The addresses of the watched interface, with this index.
    WatchedAddresses(u32),
    /// The link of a misplaced address.
    Place(u32),
    /// All links.
    Links,
    /// The addresses of the link that asks other stations for the VIP.
    Prober(u32),
    /// The addresses of this link, to announce them.
    Link(u32),
    /// All addresses.
    All,
}

impl Subject {
    pub(super) fn question(self) -> Question {
        match self {
            Self::Watched => Question::Interface,
            Self::Place(ifindex) => Question::Link(ifindex),
            Self::Links => Question::Links,
            Self::WatchedAddresses(ifindex) | Self::Prober(ifindex) | Self::Link(ifindex) => {
                Question::Addresses { only: Some(ifindex) }
            }
            Self::All => Question::Addresses { only: None },
        }
    }

    /// Returns whether this is a part of the question about the watched interface.
    fn is_watched(self) -> bool {
        matches!(self, Self::Watched | Self::WatchedAddresses(_))
    }

    /// Returns whether the answer shows places of the VIP's address, for a view of its own.
    pub(super) fn has_places(self) -> bool {
        self.is_watched() || self == Self::All
    }

    /// Returns whether the answer says how to probe.
    pub(super) fn is_for_prober(self) -> bool {
        matches!(self, Self::Links | Self::Prober(_))
    }
}

/// Whether a subject is to be asked for, and when.
#[derive(Debug)]
struct Want {
    due: Option<Instant>,
    backoff: Backoff,
}

impl Want {
    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }
}

/// Asks one question at a time.
#[derive(Debug)]
pub(super) struct Resync {
    watched: Want,
    all: Want,
    /// The state waits for all addresses: the answer about the watched interface alone had gaps.
    pub(super) all_for_state: bool,
    links: Want,
    /// The subject of the question in progress.
    pub(super) asked: Option<Subject>,
    /// The index of the watched interface, which the kernel has just shown, and whose addresses are the next question.
    pub(super) then_addresses_of: Option<u32>,
    /// The link that asks other stations, whose addresses are wanted.
    prober: Option<u32>,
    /// The answer about this link's addresses alone had gaps, so that all are listed for them.
    pub(super) all_for_link: Option<u32>,
    /// A question about a place or a link's addresses has failed, and the next one waits until it is due.
    single: Want,
    /// When the event queue was last read to its end, unless a message has been read since.
    emptied: Option<Instant>,
    /// The queue has been read to its end since the last loss of events. Until then the kernel drops all events, and older
    /// ones wait in the queue (`netlink_overrun` in `net/netlink/af_netlink.c`).
    pub(super) is_readable: bool,
    /// The number of datagrams for which the queue has room, and of those read since the last answer.
    queue_len: usize,
    datagrams: usize,
}

impl Resync {
    /// Asks for everything, and for all links if the daemon announces at its start.
    pub(super) fn new(seed: u32, queue_len: usize) -> Self {
        let want = |due, seed| Want { due, backoff: Backoff::new(seed) };
        Self {
            watched: want(Some(Instant::ZERO), seed),
            all: want(Some(Instant::ZERO), seed.rotate_left(8)),
            all_for_state: false,
            links: want(None, seed.rotate_left(16)),
            asked: None,
            then_addresses_of: None,
            prober: None,
            all_for_link: None,
            single: want(None, seed.rotate_left(24)),
            emptied: None,
            is_readable: false,
            queue_len,
            datagrams: 0,
        }
    }

    /// Returns whether that is the first empty queue since a loss of events.
    pub(super) fn handle_queue_empty(&mut self, now: Instant) -> bool {
        self.emptied = Some(now);
        !core::mem::replace(&mut self.is_readable, true)
    }

    /// Notes that a datagram was read, and that the queue may have more.
    pub(super) fn handle_datagram(&mut self) {
        self.emptied = None;
        self.datagrams = self.datagrams.saturating_add(1);
    }

    /// Notes a loss of events.
    pub(super) fn handle_loss(&mut self) {
        (self.emptied, self.is_readable, self.then_addresses_of) = (None, false, None);
    }

    /// Returns whether every event has been read that was queued before the last answer.
    pub(super) fn has_caught_up(&self) -> bool {
        self.is_readable && (self.emptied.is_some() || self.datagrams >= self.queue_len)
    }

    /// Asks for the watched interface at once.
    pub(super) fn request_watched(&mut self) {
        self.watched.due = Some(Instant::ZERO);
    }

    /// Asks for the watched interface, after a wait that grows, because a message could not be read.
    pub(super) fn request_watched_later(&mut self, now: Instant) {
        let Want { due, backoff } = &mut self.watched;
        due.get_or_insert_with(|| backoff.after_failure(now));
    }

    /// Asks for all addresses after a short wait, as requests often come in bursts.
    pub(super) fn request_all(&mut self, now: Instant) {
        let Want { due, backoff } = &mut self.all;
        due.get_or_insert_with(|| backoff.pause(now));
    }

    /// Asks for all addresses at `due`, and before for all links, if the announcer `wants_links`.
    pub(super) fn request_lists(&mut self, wants_links: bool, due: Instant) {
        let earlier =
            |want: &mut Want| want.due = Some(want.due.map_or(due, |known| known.min(due)));
        earlier(&mut self.all);
        if wants_links {
            earlier(&mut self.links);
        }
    }

    /// Asks for all links, for all addresses, or for those of the link that asks other stations, at once.
    pub(super) fn request(&mut self, question: Question, now: Instant) {
        match question {
            Question::Links => self.links.due = Some(now),
            Question::Addresses { only: Some(ifindex) } => self.prober = Some(ifindex),
            _ => self.all.due = Some(now),
        }
    }

    /// Asks for no links: nothing is announced.
    pub(super) fn cancel_links(&mut self) {
        self.links.due = None;
        self.links.backoff.reset();
    }

    /// Asks for all links, and then for all addresses, after a short wait.
    pub(super) fn request_links_later(&mut self, now: Instant) {
        let due = self.links.backoff.pause(now);
        self.request_lists(true, due);
    }

    /// Returns the subject to ask for, if one is due. `is_answered`: an answer about the state waits for the queue to be read.
    pub(super) fn next_subject(
        &self,
        place: Option<u32>,
        link: Option<u32>,
        is_answered: bool,
        now: Instant,
    ) -> Option<Subject> {
        if let Some(ifindex) = self.then_addresses_of {
            return Some(Subject::WatchedAddresses(ifindex));
        } else if self.asked.is_some() || !self.is_readable || is_answered {
            return None;
        }
        // Links often change several times in a row.
        let is_calm = self.emptied.is_some() && self.single.due.is_none_or(|due| now >= due);
        let single = |ifindex: Option<u32>| ifindex.filter(|_| is_calm);
        if self.watched.is_due(now) {
            Some(Subject::Watched)
        } else if self.watched.due.is_some() {
            None
        } else if let Some(ifindex) = self.prober {
            Some(Subject::Prober(ifindex))
        } else if let Some(ifindex) = single(place) {
            Some(Subject::Place(ifindex))
        } else if self.links.is_due(now) {
            Some(Subject::Links)
        } else if self.all_due().is_some_and(|due| now >= due) {
            Some(Subject::All)
        } else {
            single(link).map(Subject::Link)
        }
    }

    /// Returns when to ask for all addresses: after their links, unless the state waits.
    fn all_due(&self) -> Option<Instant> {
        self.all.due.filter(|_| self.links.due.is_none() || self.all_for_state)
    }

    fn want(&mut self, subject: Subject) -> Option<&mut Want> {
        match subject {
            Subject::Watched | Subject::WatchedAddresses(_) => Some(&mut self.watched),
            Subject::Links => Some(&mut self.links),
            Subject::All => Some(&mut self.all),
            Subject::Place(_) | Subject::Link(_) => Some(&mut self.single),
            Subject::Prober(_) => None,
        }
    }

    /// Notes that a question is asked.
    pub(super) fn ask(&mut self, subject: Subject) {
        match self.want(subject) {
            Some(want) => want.due = None,
            // The next probe asks again.
            None => self.prober = None,
        }
        (self.asked, self.then_addresses_of) = (Some(subject), None);
    }

    /// Ends the question in progress. Returns its subject.
    pub(super) fn end(&mut self) -> Option<Subject> {
        self.datagrams = 0;
        self.asked.take()
    }

    /// Asks for a subject again, unless its answer is complete.
    pub(super) fn retry(&mut self, subject: Subject, answer: Answer, now: Instant) {
        // The flag of an interruption is never set for one interface alone. An answer about all addresses has it.
        match (subject, answer) {
            (_, Answer::Interrupted) if subject.is_watched() => {
                (self.all.due, self.all_for_state) = (Some(now), true);
            }
            (Subject::Link(ifindex), Answer::Interrupted) => {
                self.all_for_link = Some(ifindex);
                self.request_all(now);
            }
            (Subject::All, Answer::Complete) => self.all_for_link = None,
            _ => {}
        }
        let Some(Want { due, backoff }) = self.want(subject) else { return };
        if let Answer::Failed(_) = answer {
            due.get_or_insert_with(|| backoff.after_failure(now));
            return;
        }
        backoff.reset();
        // The wait does not grow: other links and addresses may change all the time.
        if answer == Answer::Interrupted && !subject.is_watched() {
            due.get_or_insert_with(|| backoff.pause(now));
        }
    }

    /// Returns whether every event until `now` has been read.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.emptied.is_some_and(|emptied| now <= emptied + EMPTY_LASTS)
    }

    /// Returns whether no question that decides the state is pending.
    pub(super) fn is_known(&self) -> bool {
        self.watched.due.is_none() && !self.all_for_state
    }

    /// Returns when the next question is due. `has_single`: one about a place or about a link's addresses is wanted.
    pub(super) fn deadline(&self, has_single: bool) -> Option<Instant> {
        if self.asked.is_some() {
            return None;
        }
        let single = has_single.then(|| self.single.due.unwrap_or(Instant::ZERO));
        let prober = self.prober.map(|_| Instant::ZERO);
        let others = [self.all_due(), self.links.due, prober, single];
        self.watched.due.or_else(|| others.into_iter().flatten().min())
    }
}
