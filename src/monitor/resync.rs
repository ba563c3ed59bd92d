//! Resynchronisation: pending dumps, which are requested one at a time, the most urgent first.
//!
//! The state of the VIP requires two answers: the watched interface by its name, and all addresses. Links are listed only
//! for announcements, and last, so that no report waits for them.
//!
//! A dump that fails, or has gaps, is requested again after a wait. A dump that is requested during another starts at
//! its end, without that wait.

use super::backoff::Backoff;
use super::dump::MessageClass;
use super::{Dump, DumpResult, Duration, Instant};
use crate::errno::Errno;
use crate::wire::rtnl::{Body, Message};

/// The longest time from the request of a dump to its end.
const DUMP_TIMEOUT: Duration = Duration::from_secs(5);

/// The purpose of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Announcements, or a misplaced address.
    Others,
    /// The state, which waits for the dump.
    State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) dump: Dump,
    pub(super) purpose: Purpose,
    /// Only the addresses of the interface with this index are listed.
    pub(super) only: Option<u32>,
    /// The result, unless the kernel reports an error at the end.
    result: DumpResult,
    deadline: Instant,
}

/// A kind of dump: whether it is wanted, when, and why.
#[derive(Debug)]
struct Want {
    due: Option<Instant>,
    purpose: Purpose,
    backoff: Backoff,
    /// The result of the last dump of this kind.
    last: DumpResult,
}

/// Requests one dump at a time, as soon as the queue is empty.
///
/// A netlink socket runs one dump at a time (`EBUSY`). After an overrun the kernel drops all events until the queue is
/// empty, so the events after an earlier dump would be lost.
#[derive(Debug)]
pub(super) struct Resync {
    /// The port of the socket. Replies repeat it.
    port: u32,
    /// The sequence number of the last request. Replies repeat it.
    sequence: u32,
    /// In the order of [`Dump::ALL`].
    wants: [Want; 3],
    running: Option<Running>,
    /// When the netlink queue was last empty. None: a message has been read since.
    queue_empty_at: Option<Instant>,
}

impl Resync {
    /// Requests the dumps for the first state, and all links if the daemon `announces`.
    pub(super) fn new(port: u32, seed: u32, announces: bool) -> Self {
        let now = Some(Instant::ZERO);
        let want = |due, purpose, seed| {
            let (backoff, last) = (Backoff::new(seed), DumpResult::Complete);
            Want { due, purpose, backoff, last }
        };
        let wants = [
            want(now, Purpose::State, seed),
            want(now, Purpose::Others, seed.rotate_left(8)),
            want(now.filter(|_| announces), Purpose::Others, seed.rotate_left(16)),
        ];
        Self { port, sequence: 0, wants, running: None, queue_empty_at: None }
    }

    /// Returns whether the running dump has timed out. A dump times out only at an empty queue: after a stop of the process
    /// or a hanging disk, its end may still wait there.
    pub(super) fn handle_queue_empty(&mut self, now: Instant) -> bool {
        self.queue_empty_at = Some(now);
        self.running.as_ref().is_some_and(|running| now >= running.deadline)
    }

    /// Notes that the queue may have messages to read.
    pub(super) fn expect_more(&mut self) {
        self.queue_empty_at = None;
    }

    /// Requests a dump: for the state at once, else after a short wait, because requests often come in bursts.
    pub(super) fn request(&mut self, dump: Dump, purpose: Purpose, now: Instant) {
        let want = self.want(dump);
        match purpose {
            Purpose::State => (want.due, want.purpose) = (Some(Instant::ZERO), purpose),
            Purpose::Others => {
                want.due.get_or_insert_with(|| want.backoff.pause(now));
            }
        }
    }

    /// Requests a dump after a wait that grows, because a message could not be read.
    pub(super) fn request_later(&mut self, dump: Dump, purpose: Purpose, now: Instant) {
        let want = self.want(dump);
        want.due.get_or_insert_with(|| want.backoff.after_failure(now));
        want.purpose = want.purpose.max(purpose);
    }

    fn want(&mut self, dump: Dump) -> &mut Want {
        let [interface, addresses, links] = &mut self.wants;
        match dump {
            Dump::Interface => interface,
            Dump::Addresses => addresses,
            Dump::Links => links,
        }
    }

    /// Marks the running dump as incomplete, because a message could not be read.
    pub(super) fn mark_incomplete(&mut self) {
        if let Some(running) = &mut self.running {
            running.result = DumpResult::Malformed;
        }
    }

    /// Starts the dump that is due, if any. `watched` is the index of the watched interface.
    ///
    /// A dump of all addresses takes several reads, and changes between them interrupt it, possibly every time. So the
    /// next dump for the state covers only the watched interface, which takes one read.
    pub(super) fn begin(&mut self, watched: Option<u32>, now: Instant) -> Option<(Running, u32)> {
        if self.running.is_some() || self.queue_empty_at != Some(now) {
            return None;
        }
        let is_due = |want: &Want| want.due.is_some_and(|due| now >= due);
        let dump = Dump::ALL.into_iter().zip(&self.wants).find(|(_, want)| is_due(want))?.0;
        let want = self.want(dump);
        let purpose = core::mem::replace(&mut want.purpose, Purpose::Others);
        want.due = None;
        let alone = dump == Dump::Addresses
            && purpose == Purpose::State
            && want.last == DumpResult::Interrupted;
        let (only, result) = (watched.filter(|_| alone), DumpResult::Complete);
        let running = Running { dump, purpose, only, result, deadline: now + DUMP_TIMEOUT };
        self.sequence = self.sequence.wrapping_add(1);
        Some((*self.running.insert(running), self.sequence))
    }

    /// Returns the class of a message.
    ///
    /// Events repeat the port and the sequence number of the request that caused them. A socket of another namespace
    /// may have the port of this one, and can create links here, but not addresses. So an address with this port is
    /// from a dump that timed out, and may be stale.
    pub(super) fn classify(&mut self, message: &Message) -> MessageClass {
        let has_our_port = message.port == self.port;
        let is_reply = has_our_port && message.sequence == self.sequence;
        let Some(running) = self.running.as_mut().filter(|_| is_reply) else {
            return match message.body {
                Body::Done(_) | Body::Error(_) | Body::Other => MessageClass::Ignored,
                Body::NewAddress(_) if has_our_port => MessageClass::Ignored,
                _ => MessageClass::Event,
            };
        };
        if message.interrupted {
            running.result = DumpResult::Interrupted;
        }
        match message.body {
            Body::Done(None) => MessageClass::DumpEnded(running.result),
            Body::Done(Some(errno)) | Body::Error(errno) => {
                // ENODEV: no interface has the name or index, so it has no addresses.
                let errno = Errno(errno);
                let is_gone = errno == Errno::NO_DEVICE;
                let failed = DumpResult::Failed(errno);
                MessageClass::DumpEnded(if is_gone { running.result } else { failed })
            }
            _ => MessageClass::Listed(running.dump),
        }
    }

    /// Ends and returns the running dump.
    pub(super) fn end(&mut self) -> Option<Running> {
        self.running.take()
    }

    /// Requests a dump again after a wait, unless its work is `done`: for the state, and for the other purpose. A request
    /// since its start does not wait.
    pub(super) fn retry(
        &mut self,
        ended: Running,
        result: DumpResult,
        done: [bool; 2],
        now: Instant,
    ) {
        let [state_is_done, others_are_done] = done;
        let want = self.want(ended.dump);
        want.last = result;
        let is_wanted = ended.purpose == Purpose::State && !state_is_done;
        if is_wanted {
            want.purpose = Purpose::State;
        }
        // After an answer the wait does not grow: other links and addresses may change all the time.
        let is_answered = matches!(result, DumpResult::Complete | DumpResult::Interrupted);
        if is_answered {
            want.backoff.reset();
        }
        if is_wanted || !others_are_done {
            let backoff = &mut want.backoff;
            want.due.get_or_insert_with(|| {
                if is_answered { backoff.pause(now) } else { backoff.after_failure(now) }
            });
        }
    }

    /// Returns whether the state is that of `now`: known, and no event may wait to be read.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.is_known() && self.queue_empty_at == Some(now)
    }

    /// Returns whether the state was known when the queue was last empty: no dump that decides it is pending.
    pub(super) fn is_known(&self) -> bool {
        let wanted = self.wants.iter().filter(|want| want.due.is_some()).map(|want| want.purpose);
        let running = self.running.iter().map(|running| running.purpose);
        wanted.chain(running).all(|purpose| purpose != Purpose::State)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.running {
            Some(running) => Some(running.deadline),
            None => self.wants.iter().filter_map(|want| want.due).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the wait for a dump of all addresses after this number of dumps with this result.
    fn wait_after(dumps: u32, result: DumpResult, done: bool) -> Duration {
        let mut resync = Resync::new(1, 1, false);
        let mut now = Instant::ZERO;
        for _ in 0..dumps {
            let due = resync.wants[1].due.take().unwrap_or(now);
            now = due.max(now);
            resync.wants[0].due = None;
            resync.wants[1].due = Some(now);
            resync.handle_queue_empty(now);
            let (running, _) = resync.begin(None, now).unwrap();
            assert_eq!(resync.end().unwrap().dump, Dump::Addresses);
            resync.retry(running, result, [done; 2], now);
        }
        resync.wants[1].due.map_or(Duration::ZERO, |at| at - now)
    }

    #[test]
    fn wait_grows_after_failures_and_not_after_answers() {
        let (short, long) = (Duration::from_millis(100), Duration::from_secs(2));
        assert_eq!(wait_after(9, DumpResult::Complete, true), Duration::ZERO);
        for result in [DumpResult::Complete, DumpResult::Interrupted] {
            let wait = wait_after(9, result, false);
            assert!(wait > Duration::ZERO && wait < short, "{result:?}");
        }
        for result in [DumpResult::TimedOut, DumpResult::Malformed, DumpResult::Failed(Errno(1))] {
            assert!(wait_after(9, result, false) > long, "{result:?}");
        }
    }

    #[test]
    fn request_during_a_dump_does_not_wait_after_its_failure() {
        for requested in Dump::ALL {
            let mut resync = Resync::new(1, 1, true);
            for dump in Dump::ALL {
                let now = Instant::from_secs(1);
                resync.handle_queue_empty(now);
                let (running, _) = resync.begin(None, now).unwrap();
                assert_eq!(running.dump, dump, "the most urgent first");
                if dump == Dump::Links {
                    resync.request(requested, Purpose::State, now);
                }
                resync.end();
                let done = dump != Dump::Links;
                let result = if done { DumpResult::Complete } else { DumpResult::TimedOut };
                resync.retry(running, result, [done; 2], now);
            }
            assert_eq!(resync.deadline(), Some(Instant::ZERO), "{requested:?}");
        }
    }

    #[test]
    fn dump_for_others_after_one_for_the_state_leaves_no_doubt() {
        let (mut resync, now) = (Resync::new(1, 1, false), Instant::ZERO);
        for expected in [Dump::Interface, Dump::Addresses] {
            resync.request(expected, Purpose::State, now);
            resync.handle_queue_empty(now);
            let (running, _) = resync.begin(None, now).unwrap();
            assert_eq!(running.dump, expected);
            resync.end();
            resync.retry(running, DumpResult::Complete, [true; 2], now);
        }
        resync.request(Dump::Addresses, Purpose::Others, now);
        assert!(resync.is_known());
    }

    #[test]
    fn dump_times_out_at_an_empty_queue() {
        let mut resync = Resync::new(1, 1, false);
        assert!(!resync.handle_queue_empty(Instant::ZERO));
        resync.begin(None, Instant::ZERO);
        for (millis, expected) in [(4999, false), (5000, true)] {
            let has_timed_out = resync.handle_queue_empty(Instant::from_millis(millis));
            assert_eq!(has_timed_out, expected, "{millis}");
        }
    }
}
