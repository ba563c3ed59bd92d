//! Reports: the effects of a new state on each feature, and the lines that explain the state.

use super::announce::Announcer;
use super::machine::{DownLine, Monitor};
use super::split_brain::Step;
use super::{Action, Cause, Duration, Instant, LimitedEvent, LogEvent, State};

/// The longest time from an interface going down to its deletion, if the kernel deletes it. On a busy machine it was
/// over 200 ms.
const DELETION_DELAY: Duration = Duration::from_secs(1);

impl Monitor<'_> {
    /// Queues the state for each consumer that lacks it, and the line that explains it.
    pub(super) fn report(&mut self, now: Instant) {
        let again = self.reload_pending && self.is_known();
        if let Some(hook) = &mut self.hook {
            if again {
                hook.run_again();
            }
            hook.post(self.vip.hook_state(), now);
        }
        let Some(state) = self.vip.state() else { return };
        if let Some(announcer) = &mut self.announcer
            && announcer.handle_role(state == State::Active, self.vip.instance(), now)
        {
            self.resync.request_lists(announcer.links_missing, now);
        }
        if state == State::Backup {
            self.resync.cancel_links();
        }
        let last = self.reported.map(|(state, _)| state);
        let is_new = last != Some(state);
        if !is_new && !again {
            return;
        }
        self.reload_pending &= !again;
        self.state_file.writes.post(state, now);
        self.file_check.restart(now);
        if let Some(outbox) = &mut self.outbox {
            outbox.post(state, now);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.request();
        }
        if !is_new {
            return;
        }
        self.reported = Some((state, now));
        self.journal.counters.transitions += 1;
        self.conntrack.iter_mut().for_each(|conntrack| conntrack.post(state));
        if last.is_none() {
            return self.journal.log(LogEvent::Initial(state));
        }
        let cause = self.vip.cause();
        let due = now + if cause == Cause::InterfaceDown { DELETION_DELAY } else { Duration::ZERO };
        if let Some((earlier, _)) = self.change.replace((cause, due)) {
            self.journal.log(LogEvent::Changed(earlier));
        }
        // The cause is logged before its effects, unless the interface may be about to be deleted.
        self.log_change(now);
    }

    /// Logs the last change once its cause is final: the kernel sets an interface down, and removes its addresses, before
    /// it deletes the interface.
    pub(super) fn log_change(&mut self, now: Instant) {
        let is_gone = self.vip.cause() == Cause::InterfaceGone;
        let is_final = is_gone || self.exit.is_pending();
        if let Some((cause, _)) = self.change.take_if(|(_, due)| is_final || now >= *due) {
            let cause = if is_gone { Cause::InterfaceGone } else { cause };
            self.journal.log(LogEvent::Changed(cause));
        }
    }

    /// Logs a misplaced VIP while this router is backup, and an interface that stays down while it is active.
    pub(super) fn log_troubles(&mut self, now: Instant) -> Option<Action> {
        self.log_change(now);
        // A line that the limit does not allow yet waits for that, as the trouble may last. After a loss of events, the link
        // of a place is unknown for a moment.
        let location = self.vip.misplaced();
        if self.vip.unknown_link().is_none()
            && self.misplaced_line_due().is_none_or(|due| now >= due)
            && location != core::mem::replace(&mut self.logged_location, location)
            && let Some((interface, cidr)) = location
        {
            self.journal.log_limited(LimitedEvent::Misplaced { interface, cidr }, now);
        }
        // A later backup has once had the VIP, so its interface is right.
        if !self.logged_elsewhere
            && self.journal.counters.transitions == 1
            && let Some((interface, cidr)) = self.vip.elsewhere()
        {
            self.logged_elsewhere = true;
            self.journal.log(LogEvent::Elsewhere { interface, cidr });
        }
        match (self.vip.down_cause(), self.down) {
            (None, _) => self.down = DownLine::None,
            (Some(cause), DownLine::Due(due)) if now >= due => {
                self.down = DownLine::Logged(cause);
                self.journal.log_limited(LimitedEvent::InterfaceDown(cause), now);
            }
            (Some(_), DownLine::Due(_)) => {}
            (Some(cause), DownLine::Logged(logged)) if cause == logged => {}
            (Some(cause), _) => {
                let next_line = self.journal.next_line(&LimitedEvent::InterfaceDown(cause));
                self.down = DownLine::Due(next_line.unwrap_or(now).max(now + DELETION_DELAY));
            }
        }
        self.journal.next_action()
    }

    /// Returns when to log the present location of a misplaced VIP, if the limit does not allow that at any time.
    pub(super) fn misplaced_line_due(&self) -> Option<Instant> {
        let location = self.vip.misplaced();
        let is_news = location != self.logged_location && self.vip.unknown_link().is_none();
        let (interface, cidr) = location.filter(|_| is_news)?;
        self.journal.next_line(&LimitedEvent::Misplaced { interface, cidr })
    }

    /// Receives claims while the VIP is present, asks about it, and mends what a split brain has done.
    pub(super) fn watch_claims(&mut self, is_current: bool, now: Instant) -> Option<Action> {
        let is_active = self.vip.state() == Some(State::Active);
        loop {
            let (detector, journal) = (self.detector.as_mut()?, &mut self.journal);
            match detector.next_step(&self.vip, is_active, is_current, journal, now)? {
                Step::Do(action) => return Some(action),
                Step::List(question) => self.resync.request(question, now),
                Step::AnnounceEverything => {
                    self.announcer.iter_mut().for_each(|a| a.announce_again(None, now));
                }
                Step::AnnounceVip => {
                    let vip = self.vip.key();
                    self.announcer.iter_mut().for_each(|a| a.announce_again(vip, now));
                }
                Step::StopAnnouncing => self.announcer.iter_mut().for_each(Announcer::stop),
                Step::DeliverAgain => {
                    if let Some(outbox) = &mut self.outbox {
                        outbox.deliver_again(now);
                    }
                    if let Some(hook) = &mut self.hook {
                        hook.run_again();
                        hook.post(self.vip.hook_state(), now);
                    }
                    // Both come before the detector.
                    return self.next_action(now);
                }
            }
        }
    }
}
