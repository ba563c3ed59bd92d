//! Split brain: another station has the VIP while this router is active.
//!
//! ```text
//!                 a claim              a sign after a second            its line
//!      ┌──────┐ ───────────▶ ┌───────────┐ ─────────▶ ┌───────────┐ ────────────▶ ┌────────┐
//!      │ None │              │ Suspected │            │ Confirmed │               │ Logged │
//!      └──────┘ ◀─────────── └───────────┘            └───────────┘               └────────┘
//!          ▲     no answer                                            silence         │
//!          └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A claim is only a suspicion: at a fail-over two routers may take the VIP, of which one gives it back at once. A second
//! later three probes ask for the VIP. A sign is a claim or an answer. One that the kernel received more than a
//! second after the first claim confirms the suspicion. One law for probes holds in every stage: a probe is unanswered
//! after a second, and counts only if the process ran, read all frames, and the link had a carrier all the while.
//!
//! Hosts may have learnt the MAC of the other station. After two probes without an answer, everything is announced
//! again (`aftermath.rs`). The removal of the VIP ends every stage.

mod aftermath;
mod episode;
mod prober;
mod socket;

use heapless::HistoryBuf;

use super::journal::Journal;
use super::vip::Vip;
use super::vrrp::virtual_router_id;
use super::{Action, Duration, Instant, LimitedEvent, LogEvent, Question};
use crate::errno::Errno;
use crate::wire::rtnl::{Body, Mac};
use crate::wire::{Claim, ClaimKind};
use aftermath::Aftermath;
pub use episode::Ending;
use episode::{Episode, INTERVAL, Stage};
pub use prober::Probe;
use prober::Prober;
use socket::Socket;

const SECOND: Duration = Duration::from_secs(1);

/// An episode that begins within this time of the end of another by the same station continues that one.
const CONTINUED: Duration = Duration::from_secs(60);

/// A network that has sent a probe back may do so for this time: there may have been a loop.
const REFLECTS: Duration = Duration::from_secs(60);

/// Episodes logged in a [`PERIOD`]. With the ends of these and of an earlier one they make 15 lines.
const MAX_EPISODES: usize = 7;
const PERIOD: Duration = Duration::from_secs(60);

/// What [`Detector::next_step`] wants.
#[derive(Debug)]
pub(super) enum Step {
    Do(Action),
    /// Ask the kernel for all links, or for the addresses of one, from which the detector learns how to probe.
    List(Question),
    /// Announce the VIP and all other addresses.
    AnnounceEverything,
    AnnounceVip,
    /// Announce nothing further for now: the other station still has the VIP.
    StopAnnouncing,
    /// Deliver the state to agent and hook again, as the other station's may have undone its effects.
    DeliverAgain,
}

/// Detects a split brain.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// The time between probes without a suspicion, if any are sent.
    probe_interval: Option<Duration>,
    prober: Prober,
    socket: Socket,
    /// When the next probe is due.
    due: Option<Instant>,
    /// When the last probe was sent.
    probed: Option<Instant>,
    /// Its answer is awaited, for a verdict.
    awaits: bool,
    /// After a probe without an answer, the next is an ordinary request, as some networks deliver no others.
    is_ordinary: bool,
    /// The last periodic probe could not be sent, for want of an own address or MAC.
    has_no_sender: bool,
    /// The link has no carrier, so no probe can be sent.
    stands_still: bool,
    /// When the network last sent a probe back: an answer from our own virtual MAC may be our own.
    reflected: Option<Instant>,
    episode: Option<Episode>,
    /// The last logged episode, and its end.
    ended: Option<(Episode, Instant)>,
    /// When the last episodes were logged.
    logged: HistoryBuf<Instant, MAX_EPISODES>,
    aftermath: Aftermath,
}

impl Detector {
    pub(super) fn new(probe_interval: Option<Duration>, announces: bool) -> Self {
        let aftermath = Aftermath::new(announces);
        Self { probe_interval, aftermath, ..Self::default() }
    }

    /// Returns whether claims are heard, as far as is known: not on a link without MACs, nor while the socket fails.
    pub(super) fn listens(&self, vip: &Vip) -> bool {
        self.socket.retry_at.is_none() && (vip.ifindex().is_none() || vip.mac().is_some())
    }

    /// Requests a new binding of the socket: the watched interface may be a new one with the same index.
    pub(super) fn handle_interface_change(&mut self) {
        self.socket.may_be_unbound = true;
    }

    /// Handles that the socket could not be bound, or is not read. If the interface is gone, its event follows.
    pub(super) fn handle_socket_failed(
        &mut self,
        action: &Action,
        errno: Errno,
        journal: &mut Journal,
        now: Instant,
    ) {
        if errno != Errno::NO_DEVICE {
            journal.log_limited(LimitedEvent::NotListening { errno }, now);
            self.socket.handle_failed(action, now);
        }
    }

    /// Handles an event of the kernel.
    pub(super) fn handle_event(&mut self, body: &Body) {
        match body {
            Body::NewLink(link) => self.prober.handle_link(link),
            Body::DelLink(link) => self.prober.handle_link_gone(link.ifindex),
            _ => {}
        }
    }

    /// Handles a loss of events.
    pub(super) fn handle_loss(&mut self) {
        self.prober.handle_loss();
    }

    /// Handles an entry of a list that says how to probe.
    pub(super) fn handle_listed(&mut self, body: &Body, vip: &Vip) {
        match body {
            Body::NewAddress(address) => self.prober.handle_address(address, vip),
            _ => self.handle_event(body),
        }
    }

    /// Handles the complete end of such a list.
    pub(super) fn handle_list_end(&mut self, question: Question) {
        self.prober.handle_list_end(question);
    }

    /// Drops the claims of other links of this host, which are no other stations.
    fn drop_own_claims(&mut self, vip: &Vip, now: Instant) {
        let is_own = |mac: &Mac| vip.mac() != Some(*mac) && self.prober.is_own(*mac);
        let Some(episode) = self.episode.as_mut().filter(|episode| !episode.is_logged()) else {
            return;
        };
        if !is_own(&episode.claimant) {
            return;
        }
        // A process that was stopped reads both claims before the list.
        if let Stage::Confirmed { .. } = episode.stage {
            episode.stage = Stage::Suspected { rounds: 0 };
        }
        match episode.other.take().filter(|other| !is_own(other)) {
            Some(other) => episode.claimant = other,
            None => self.drop_episode(now),
        }
    }

    /// Counts a frame, and handles the claim in it. The socket does not receive the daemon's own frames, so a claim from a
    /// virtual MAC is another station's, even if the watched interface has that MAC, unless the network sends frames back.
    pub(super) fn handle_frame(
        &mut self,
        claim: Option<(u32, Claim, Instant)>,
        vip: &Vip,
        journal: &mut Journal,
        now: Instant,
    ) {
        self.socket.count(now);
        let Some((ifindex, claim, at)) = claim else { return };
        let is_here =
            self.socket.watched.is_some_and(|(watched, _)| Some(watched) == vip.ifindex())
                && self.socket.since.is_some_and(|since| at >= since);
        let is_ours = is_here && [vip.ifindex(), vip.own_link()].contains(&Some(ifindex));
        let Some(own) = vip.mac().filter(|_| is_ours && claim.ip == vip.ip()) else { return };
        let is_virtual = virtual_router_id(own).is_some();
        let is_twin = claim.mac == own;
        let reflects = self.reflected.is_some_and(|at| now < at + REFLECTS);
        let is_foreign =
            if is_twin { is_virtual && !reflects } else { !self.prober.is_own(claim.mac) };
        if claim.kind == ClaimKind::Probe {
            // Another station with this virtual MAC asks at other times.
            let is_returned = self.probed.is_some_and(|probed| at < probed + SECOND / 10);
            if is_virtual && is_returned && (is_twin || !is_foreign) {
                self.handle_reflection(own, now);
            }
        } else if is_foreign {
            journal.counters.claims += 1;
            self.handle_sign(claim, is_twin, at, now);
        }
    }

    /// Handles the return of our own probe, which our own kernel has answered, too.
    fn handle_reflection(&mut self, own: Mac, now: Instant) {
        self.reflected = Some(now);
        if self.episode.is_some_and(|episode| episode.is_suspected() && episode.claimant == own) {
            self.drop_episode(now);
        }
    }

    fn handle_sign(&mut self, claim: Claim, is_twin: bool, at: Instant, now: Instant) {
        let is_answer = claim.kind == ClaimKind::Answer;
        if self.episode.is_none() {
            let mut new = Episode::new(claim.mac, at);
            if let Some((earlier, end)) = self.ended
                && now < end + CONTINUED
                && (earlier.claimant == claim.mac || earlier.other == Some(claim.mac))
            {
                (new.began, new.claims) = (earlier.began, earlier.claims);
            }
            self.episode = Some(new);
            (self.due, self.awaits, self.is_ordinary) = (Some(at + SECOND), false, false);
        }
        if let Some(episode) = &mut self.episode {
            // A claim from our own virtual MAC may be our own, sent back.
            episode.handle_sign(claim.mac, at, is_answer, is_answer || !is_twin);
            self.is_ordinary &= !is_answer;
            // A claim that was left unread while another probe was sent says nothing about that.
            if is_answer || self.probed.is_none_or(|probed| at >= probed) {
                episode.start_anew(now);
                self.awaits = false;
                self.aftermath.handle_sign();
            }
        }
        self.aftermath.switch_is_wrong |= is_twin && is_answer;
    }

    /// Returns the station of the current episode, once that has been logged.
    pub(super) fn claimant(&self) -> Option<Mac> {
        self.episode.filter(Episode::is_logged).map(|episode| episode.claimant)
    }

    /// Returns what is next. `is_active`: the VIP is present. Probes are sent, and verdicts given, only if the state
    /// `is_current`: the VIP is still present.
    pub(super) fn next_step(
        &mut self,
        vip: &Vip,
        is_active: bool,
        is_current: bool,
        journal: &mut Journal,
        now: Instant,
    ) -> Option<Step> {
        let wanted = vip.ifindex().filter(|_| is_active);
        if let Some(action) = self.watch(wanted.map(|wanted| (wanted, vip.own_link())), now) {
            return Some(Step::Do(action));
        }
        let ifindex = wanted.filter(|_| is_current)?;
        let stood_still = core::mem::replace(&mut self.stands_still, !vip.has_carrier());
        if self.stands_still {
            return None;
        }
        if stood_still {
            self.start_anew(now);
        }
        if self.awaits && self.probed.is_some_and(|probed| now >= probed + SECOND) {
            self.give_verdict(journal, now);
        }
        self.drop_own_claims(vip, now);
        (journal.next_action().map(Step::Do))
            .or_else(|| self.log_confirmed(ifindex, now).map(Step::Do))
            .or_else(|| self.end_if_silent(now).map(Step::Do))
            .or_else(|| self.aftermath.next_step(self.only_cache_since(), now))
            .or_else(|| self.probe(vip, journal, now))
            .or_else(|| journal.next_action().map(Step::Do))
    }

    /// Ends the episode if the VIP has gone, and has the socket follow it.
    fn watch(&mut self, wanted: Option<(u32, Option<u32>)>, now: Instant) -> Option<Action> {
        let ifindex = |watched: Option<(u32, _)>| watched.map(|(ifindex, _)| ifindex);
        if ifindex(wanted) != ifindex(self.socket.watched) {
            if let Some(end) = self.end_episode(Ending::VipRemoved, now) {
                return Some(end);
            }
            self.ended = None;
            self.aftermath.cancel();
            self.due = wanted.and(self.probe_interval).map(|_| now + SECOND);
        }
        if wanted != self.socket.watched {
            self.reflected = None;
            self.prober.forget_addresses();
        }
        let action = self.socket.next_action(wanted, now);
        if let Some(Action::WatchClaims { .. }) = action {
            // What is queued is discarded.
            self.start_anew(now);
        }
        action
    }

    /// Forgets the probe in flight, as no answer could come.
    fn start_anew(&mut self, now: Instant) {
        self.awaits = false;
        if let Some(episode) = &mut self.episode {
            episode.start_anew(now);
            self.due = Some(now.max(episode.suspected + SECOND));
        }
    }

    /// Decides about the last probe, which has no answer.
    fn give_verdict(&mut self, journal: &mut Journal, now: Instant) {
        let Some((probed, episode)) = self.probed.zip(self.episode.as_mut()) else { return };
        // The process was stopped, or frames were not read.
        if now >= probed + SECOND * 2 || !self.socket.has_read_since(probed) {
            return self.start_anew(now);
        }
        self.awaits = false;
        let verdict = episode.handle_silence(probed, now);
        if verdict.is_silent {
            self.aftermath.schedule(now);
        }
        if verdict.is_unconfirmed {
            self.aftermath.deliver_again = true;
            let mac = episode.claimant;
            journal.log_limited(LimitedEvent::ClaimUnconfirmed { mac }, now);
        }
        self.due = verdict.probe_at;
        if verdict.probe_at.is_none() {
            self.drop_episode(now);
        }
    }

    /// Logs a confirmed episode, if that is due.
    fn log_confirmed(&mut self, ifindex: u32, now: Instant) -> Option<Action> {
        // After a stop of the process this is due before the list of this host's links has come.
        self.line_due().filter(|due| now >= *due && self.prober.has_links(now))?;
        let episode = self.episode.as_mut()?;
        (episode.stage, episode.unsolicited) = (Stage::Logged, now);
        self.due = Some(self.due.map_or(now, |due| due.min(now + INTERVAL)));
        self.logged.write(now);
        Some(Action::Log(LogEvent::SplitBrain { mac: episode.claimant, ifindex }))
    }

    /// Returns when to log the confirmed episode, if that is pending.
    fn line_due(&self) -> Option<Instant> {
        let Stage::Confirmed { due } = self.episode?.stage else { return None };
        let oldest = self.logged.oldest().filter(|_| self.logged.is_full());
        Some(oldest.map_or(due, |logged| due.max(*logged + PERIOD)))
    }

    fn end_if_silent(&mut self, now: Instant) -> Option<Action> {
        let ending = self.episode.as_mut()?.check_end(now)?;
        self.aftermath.deliver_again |= ending == Ending::NoLongerAnswers;
        self.end_episode(ending, now)
    }

    /// Ends the current episode. Returns the line about its end, if its start has been logged.
    fn end_episode(&mut self, ending: Ending, now: Instant) -> Option<Action> {
        let episode = self.episode?;
        self.drop_episode(now);
        let Episode { claimant: mac, claims, began, last, .. } = episode;
        episode.is_logged().then(|| {
            self.ended = Some((episode, now));
            let (lasted, silent) = (last - began, now - last);
            Action::Log(LogEvent::SplitBrainOver { mac, claims, lasted, silent, ending })
        })
    }

    fn drop_episode(&mut self, now: Instant) {
        (self.episode, self.awaits) = (None, false);
        self.due = self.probe_interval.map(|interval| now + interval);
    }

    fn only_cache_since(&self) -> Option<Instant> {
        self.episode.as_ref()?.only_cache_since()
    }

    /// Returns when to probe: a second after the last probe at the earliest, as a claim may have been left unread.
    fn probe_due(&self) -> Option<Instant> {
        self.due.map(|due| self.probed.map_or(due, |probed| due.max(probed + SECOND)))
    }

    /// Sends a probe, if that is due, once the lists say how.
    fn probe(&mut self, vip: &Vip, journal: &mut Journal, now: Instant) -> Option<Step> {
        let is_due = self.probe_due().is_some_and(|due| now >= due);
        if (is_due || self.episode.is_some())
            && let Some(question) = self.prober.next_list(vip, is_due, now)
        {
            return Some(Step::List(question));
        }
        if !is_due || self.prober.waits_until().is_some_and(|until| now < until) {
            return None;
        }
        self.prober.forget_addresses();
        let is_ordinary = self.is_ordinary;
        self.is_ordinary = !is_ordinary;
        let Some(episode) = &mut self.episode else {
            self.due = self.probe_interval.map(|interval| now + interval);
            self.probed = Some(now);
            let probe = self.prober.probe(vip, is_ordinary, false);
            let has_no_sender = probe.is_none();
            if has_no_sender && !self.has_no_sender {
                journal.log_limited(LimitedEvent::NoSender, now);
            }
            self.has_no_sender = has_no_sender;
            return probe.map(send);
        };
        let is_first_round = episode.stage == Stage::Suspected { rounds: 0 };
        let probe = self.prober.probe(vip, is_ordinary, is_first_round);
        (self.probed, self.awaits, self.due) = (Some(now), probe.is_some(), Some(now + INTERVAL));
        if probe.is_none() {
            // Silence means nothing from now on.
            episode.answers = false;
            if episode.is_suspected() {
                self.end_episode(Ending::NeverAnswered, now);
            }
        }
        probe.map(send)
    }

    /// Handles the result of sending a probe. One that has not left awaits no answer.
    pub(super) fn handle_probed(
        &mut self,
        result: Result<(), Errno>,
        journal: &mut Journal,
        now: Instant,
    ) {
        self.awaits &= result.is_ok();
        match result {
            Ok(()) => journal.end_failures(|event| matches!(event, LimitedEvent::NotProbed { .. })),
            Err(errno) => journal.log_limited(LimitedEvent::NotProbed { errno }, now),
        }
    }

    /// Returns the next deadline. Unless the state `is_known` and there is a carrier, no line or probe is due.
    pub(super) fn deadline(&self, is_known: bool, has_carrier: bool) -> Option<Instant> {
        let waits_until = self.prober.waits_until();
        let after_lists = |due: Instant| waits_until.map_or(due, |until| due.max(until));
        let due = [
            self.probe_due().map(after_lists),
            self.probed.filter(|_| self.awaits).map(|probed| probed + SECOND),
            self.line_due().map(after_lists),
            self.episode.as_ref().and_then(Episode::quiet_ends),
            self.aftermath.deadline(self.only_cache_since()),
        ];
        let can_act = is_known && has_carrier && self.socket.watched.is_some();
        due.into_iter().filter(|_| can_act).chain([self.socket.pause_ends()]).flatten().min()
    }
}

fn send(probe: Probe) -> Step {
    Step::Do(Action::SendProbe(probe))
}
