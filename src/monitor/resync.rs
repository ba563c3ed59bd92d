//! Dumps: when to ask the kernel for everything again, which of its messages are the reply, and what to do
//! if that does not come or has gaps.
//!
//! A dump is complete if its end comes in time and without gaps: a reply with `NLM_F_DUMP_INTR`, or any message that
//! cannot be read, makes one. A dump that is not is requested again, after a wait. What is requested while a dump runs
//! follows it.

use super::backoff::Backoff;
use super::{Duration, Instant};
use crate::errno::Errno;
use crate::wire::rtnl::{Body, Message};

/// A dump that has not ended after this long has failed.
const DUMP_TIMEOUT: Duration = Duration::from_secs(5);

/// What the kernel is asked to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// All links.
    Links,
    /// The link that has the watched interface's name, be it but an alternative one.
    Interface,
    /// The addresses of the watched interface, by its index.
    Addresses(u32),
    /// The addresses of another interface, by its index, to be announced.
    Others(u32),
    /// The addresses of all interfaces, in search of the VIP's.
    Everywhere,
}

/// What is to be listed; the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DumpKind {
    Everywhere,
    Others,
    Addresses,
    Interface,
    /// After which the interface and its addresses follow.
    Links,
}

impl From<Dump> for DumpKind {
    fn from(dump: Dump) -> Self {
        match dump {
            Dump::Links => Self::Links,
            Dump::Interface => Self::Interface,
            Dump::Addresses(_) => Self::Addresses,
            Dump::Others(_) => Self::Others,
            Dump::Everywhere => Self::Everywhere,
        }
    }
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpResult {
    /// All was listed.
    Complete,
    /// The kernel's tables changed meanwhile (`NLM_F_DUMP_INTR`): what was listed has gaps.
    Interrupted,
    /// A message could not be read, and may have been part of it.
    Malformed,
    /// It could not be asked for, or the kernel refused.
    Failed(Errno),
    /// No end came.
    TimedOut,
}

/// What a message is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageClass {
    /// Something has changed.
    Event,
    /// This is there; the dump under way lists it.
    Listed(Dump),
    /// The dump under way has ended.
    DumpEnded(DumpResult),
    /// Nothing, or nothing any more.
    Nothing,
}

#[derive(Debug)]
struct Running {
    dump: Dump,
    deadline: Instant,
    /// How it ends, if the kernel says that it has listed all.
    result: DumpResult,
    /// Something that it may list has changed since it was requested.
    overtaken: bool,
}

/// One dump at a time, the next as soon as the queue is empty.
///
/// A netlink socket carries one dump at a time (`EBUSY`). After an overrun the kernel drops every
/// event until the queue is empty, so a dump asked for earlier would leave a gap behind it.
#[derive(Debug)]
pub(super) struct Resync {
    /// The port of the socket, which replies repeat.
    port: u32,
    /// That of the last request, which replies repeat, too.
    sequence: u32,
    requested: Option<DumpKind>,
    running: Option<Running>,
    not_before: Instant,
    /// When the netlink queue was last empty, unless something has been read from it since.
    queue_empty_at: Option<Instant>,
    backoff: Backoff,
}

impl Resync {
    pub(super) fn new(port: u32, seed: u32) -> Self {
        Self {
            port,
            sequence: 0,
            requested: Some(DumpKind::Links),
            running: None,
            not_before: Instant::ZERO,
            queue_empty_at: None,
            backoff: Backoff::new(seed),
        }
    }

    pub(super) fn handle_queue_empty(&mut self, now: Instant) {
        self.queue_empty_at = Some(now);
    }

    /// From now on there may be something to be read from it.
    pub(super) fn expect_more(&mut self) {
        self.queue_empty_at = None;
    }

    /// Whether all that the kernel had to say by now has been handled. As time passes, that is not known any more.
    pub(super) fn is_queue_empty(&self, now: Instant) -> bool {
        self.queue_empty_at == Some(now)
    }

    /// Has this listed, and what follows from it.
    pub(super) fn request(&mut self, kind: DumpKind) {
        // What is more urgent does not wait for the failures of what is less.
        if self.requested < Some(kind) {
            self.not_before = Instant::ZERO;
        }
        self.requested = self.requested.max(Some(kind));
    }

    /// A message could not be read: everything is to be listed. Had it been part of the dump under way, that
    /// would have a gap, and the next will hardly do better soon.
    pub(super) fn mark_incomplete(&mut self) {
        if let Some(running) = &mut self.running {
            running.result = DumpResult::Malformed;
        }
        self.request(DumpKind::Links);
    }

    /// What is to be listed now. [`Resync::begin`] follows, unless there is nothing to ask the kernel for.
    pub(super) fn next(&mut self, now: Instant) -> Option<DumpKind> {
        let may_begin =
            self.running.is_none() && now >= self.not_before && self.is_queue_empty(now);
        if may_begin { self.requested.take() } else { None }
    }

    /// Begins a dump. Returns the sequence number of the request.
    pub(super) fn begin(&mut self, dump: Dump, now: Instant) -> u32 {
        let (deadline, result) = (now + DUMP_TIMEOUT, DumpResult::Complete);
        self.running = Some(Running { dump, deadline, result, overtaken: false });
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Returns which class a message is of.
    ///
    /// Events repeat the port and the sequence number of the request that caused them, which may have come
    /// from another namespace, where a socket may have our port. Links can be made from there, addresses
    /// cannot: one with our port is from a dump that was given up, and may not be there any more.
    pub(super) fn classify(&mut self, message: &Message) -> MessageClass {
        let has_our_port = message.port == self.port;
        let is_reply = has_our_port && message.sequence == self.sequence;
        let Some(running) = self.running.as_mut().filter(|_| is_reply) else {
            return match message.body {
                Body::Done(_) | Body::Error(_) | Body::Other => MessageClass::Nothing,
                Body::NewAddress(_) if has_our_port => MessageClass::Nothing,
                _ => MessageClass::Event,
            };
        };
        if message.interrupted {
            running.result = DumpResult::Interrupted;
        }
        match message.body {
            Body::Done(None) => MessageClass::DumpEnded(running.result),
            Body::Done(Some(errno)) | Body::Error(errno) => {
                // ENODEV: the interface whose addresses were asked for is gone, and they with it; or there is
                // none of the name that was asked for.
                let errno = Errno(errno);
                let is_gone = errno == Errno::NO_DEVICE;
                let failed = DumpResult::Failed(errno);
                MessageClass::DumpEnded(if is_gone { running.result } else { failed })
            }
            _ => MessageClass::Listed(running.dump),
        }
    }

    /// Handles a change of what these dumps list.
    ///
    /// A kernel may list it as it was, or although it has gone, after the event of that: its dumps of addresses take no
    /// RTNL lock (`inet_dump_ifaddr` in `net/ipv4/devinet.c`), and what is listed under that lock is queued after it has
    /// been released (`netlink_dump` in `net/netlink/af_netlink.c`). So the dump is repeated, after a wait, as changes
    /// may go on and on. The question for one link by its name (`rtnl_getlink`) is answered under the lock.
    pub(super) fn note_overtaken(&mut self, is_listed_by: impl FnOnce(Dump) -> bool) {
        if let Some(running) = &mut self.running {
            running.overtaken |= is_listed_by(running.dump);
        }
    }

    /// Whether what the dump under way lists may have been otherwise before.
    pub(super) fn is_overtaken(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.overtaken)
    }

    /// Ends the dump under way. Returns which one that was.
    pub(super) fn end(&mut self, result: DumpResult, now: Instant) -> Option<Dump> {
        let Running { dump, overtaken, .. } = self.running.take()?;
        if result == DumpResult::Complete && !overtaken {
            self.backoff.reset();
            self.not_before = Instant::ZERO;
        } else {
            if result == DumpResult::Complete {
                // It was answered: other links may come and go all the time, and the wait does not grow.
                self.backoff.reset();
            }
            self.request(dump.into());
            self.not_before = self.backoff.after_failure(now);
        }
        Some(dump)
    }

    /// Whether the dump under way should have ended by now. Its end may wait to be read, if the process was stopped
    /// or a disk hung.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let is_late = self.running.as_ref().is_some_and(|running| now >= running.deadline);
        is_late && self.is_queue_empty(now)
    }

    /// Whether all has been listed that machines wait for.
    pub(super) fn is_settled(&self) -> bool {
        self.outstanding() < Some(DumpKind::Others)
    }

    /// Whether the state may be another than it seems: what tells of it has yet to be listed.
    pub(super) fn is_state_in_doubt(&self) -> bool {
        self.outstanding() >= Some(DumpKind::Addresses)
    }

    /// The most urgent of what has yet to be listed and what is being listed.
    fn outstanding(&self) -> Option<DumpKind> {
        self.requested.max(self.running.as_ref().map(|running| running.dump.into()))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.running {
            Some(running) => Some(running.deadline),
            None => self.requested.map(|_| self.not_before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::ZERO;

    /// How long the next dump waits after so many that ended like this.
    fn wait_after(dumps: u32, overtaken: bool, result: DumpResult) -> Duration {
        let mut resync = Resync::new(1, 1);
        for _ in 0..dumps {
            resync.begin(Dump::Links, T0);
            resync.note_overtaken(|_| overtaken);
            resync.end(result, T0);
        }
        resync.deadline().map_or(Duration::ZERO, |at| at - T0)
    }

    #[test]
    fn wait_grows_after_failures_and_not_after_what_was_overtaken() {
        let (short, long) = (Duration::from_millis(100), Duration::from_secs(2));
        assert!(wait_after(9, true, DumpResult::Complete) < short);
        assert!(wait_after(9, true, DumpResult::Interrupted) > long);
        assert!(wait_after(9, false, DumpResult::Interrupted) > long);
    }

    #[test]
    fn overdue_is_what_is_late_when_nothing_is_left_to_be_read() {
        let mut resync = Resync::new(1, 1);
        resync.begin(Dump::Links, T0);
        for (millis, read_at, expected) in
            [(4999, 4999, false), (5000, 4999, false), (5000, 5000, true)]
        {
            resync.handle_queue_empty(Instant::from_millis(read_at));
            assert_eq!(resync.is_overdue(Instant::from_millis(millis)), expected, "{millis}");
        }
    }

    #[test]
    fn only_what_is_more_urgent_does_not_wait_for_what_failed() {
        for (kind, waits) in
            [(DumpKind::Others, true), (DumpKind::Addresses, true), (DumpKind::Links, false)]
        {
            let mut resync = Resync::new(1, 1);
            assert_eq!(resync.requested.take(), Some(DumpKind::Links));
            resync.begin(Dump::Addresses(7), T0);
            resync.end(DumpResult::TimedOut, T0);
            resync.request(kind);
            assert_eq!(resync.deadline() > Some(T0), waits, "{kind:?}");
        }
    }
}
